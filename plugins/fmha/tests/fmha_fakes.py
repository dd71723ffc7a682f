"""FlashInfer's functions under their own names and layouts, computed by the definitions."""

import torch

from mstar_core.ops.attend import Rows, attend_rows, mix_exactly
from mstar_core.ops.paged_attention.reference import laid
from mstar_fmha.attention import Library
from mstar_fmha.backend import FmhaPagedAttention

CALLS = []
"""The kernels that were started, with their rows."""


def given(kv_cache, block_tables, seq_lens, max_len, kv_layout):
    """Keys, values ``[B, S, G, D]`` and lengths; pages are ``[P, p, G, D]``: NHD."""
    assert kv_layout == "NHD"
    assert seq_lens.dtype == torch.uint32
    assert block_tables.dtype == torch.int32
    assert block_tables.is_contiguous()
    assert max_len == block_tables.shape[1] * kv_cache[0].shape[1]
    lens = seq_lens.view(torch.int32)
    return *laid(kv_cache, block_tables.long(), lens), lens


def trtllm_batch_decode_with_kv_cache(
    query, kv_cache, workspace_buffer, block_tables, seq_lens, max_seq_len, bmm1_scale=1.0,
    bmm2_scale=1.0, out=None, kv_layout="HND", backend="auto",
):  # fmt: skip
    assert backend == "trtllm-gen"
    assert bmm2_scale == 1.0
    CALLS.append(("decode", len(query)))
    k, v, lens = given(kv_cache, block_tables, seq_lens, max_seq_len, kv_layout)
    index = torch.arange(len(query), dtype=torch.int32)
    rows = Rows(
        kv_lens_B=lens, before_B=None, q_starts_B=index, q_lens_B=torch.ones_like(index),
        max_q=1, decode=1,
    )  # fmt: skip
    out.copy_(attend_rows(query, k, v, rows, bmm1_scale, mix_exactly))
    return out


def trtllm_batch_context_with_kv_cache(
    query, kv_cache, workspace_buffer, block_tables, seq_lens, max_q_len, max_kv_len, bmm1_scale,
    bmm2_scale, batch_size, cum_seq_lens_q, cum_seq_lens_kv, out=None, kv_layout="HND",
):  # fmt: skip
    """Causal: the last query of a row sees all of its keys."""
    assert batch_size == len(seq_lens) == len(cum_seq_lens_q) - 1 == len(cum_seq_lens_kv) - 1
    assert cum_seq_lens_q.dtype == cum_seq_lens_kv.dtype == torch.int32
    CALLS.append(("context", batch_size))
    k, v, lens = given(kv_cache, block_tables, seq_lens, max_kv_len, kv_layout)
    spans = cum_seq_lens_q.diff()
    rows = Rows(
        kv_lens_B=lens, before_B=lens - spans, q_starts_B=cum_seq_lens_q[:-1], q_lens_B=spans,
        max_q=len(query), decode=0,
    )  # fmt: skip
    out.copy_(attend_rows(query, k, v, rows, bmm1_scale, mix_exactly))
    return out


class OverFakes(FmhaPagedAttention):
    """On a CPU, for every size and dtype."""

    def available(self, device):
        return None

    def supports(self, request):
        return None

    def library(self):
        return Library(
            decode=trtllm_batch_decode_with_kv_cache, context=trtllm_batch_context_with_kv_cache
        )


BACKEND = OverFakes()
