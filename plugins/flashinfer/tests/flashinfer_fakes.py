"""FlashInfer's functions under its own names and in its own layouts, computed by the definitions.

Parameters are the library's, less those that the plugin leaves out; ``test_signatures.py`` holds
them against the versions that are recorded, and against the library where it can be imported.
"""

import torch

from mstar_core.ops.attend import Rows, attend_rows, mix_exactly
from mstar_core.ops.functional import l2_norm
from mstar_core.ops.gated_delta.delta import delta_step
from mstar_core.ops.gated_delta.reference import Streams
from mstar_core.ops.gated_delta.reference import _recur as over_rows
from mstar_core.ops.paged_attention.reference import laid
from mstar_flashinfer import delta_rule, gated_delta, sampling
from mstar_flashinfer.attention import paged, planned

PLANS = []
"""Every plan that was made: by whom, by which kernel, for which spans; and each start of XQA."""


def on_host(*tensors):
    assert all(x.device.type == "cpu" and x.dtype == torch.int32 for x in tensors)


def tabled(indptr, indices):
    """The block table of a list of pages."""
    counts = indptr.diff()
    table = torch.zeros(len(counts), max(1, int(counts.max())), dtype=torch.long)
    for row, (first, n) in enumerate(zip(indptr.tolist(), counts.tolist(), strict=False)):
        table[row, :n] = indices[first : first + n]
    return table


class Wrapper:
    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_tensor_cores=False, backend="auto"
    ):
        assert kv_layout == "NHD"
        assert float_workspace_buffer.dtype == torch.uint8
        self.backend, self.use_tensor_cores = backend, use_tensor_cores

    def keep(self, queries, bounds, pages, last, sizes, causal, scale):
        on_host(queries, bounds, last)
        assert queries[0] == 0, "parts of split keys are merged from row 0 on"
        self.table, self.queries, self.causal, self.scale = (
            tabled(bounds, pages),
            queries,
            causal,
            scale,
        )
        self.kv_lens = (bounds.diff() - 1).clamp_min(0) * sizes[3] + last
        PLANS.append((type(self).__name__, self.backend, self.queries.diff().tolist()))

    def run(self, q, paged_kv_cache, out=None):
        spans = self.queries.diff()
        rows = Rows(
            kv_lens_B=self.kv_lens,
            before_B=self.kv_lens - spans if self.causal else None,
            q_starts_B=self.queries[:-1],
            q_lens_B=spans,
            max_q=int(spans.max()),
            decode=0,
        )
        k, v = laid(paged_kv_cache, self.table.long(), self.kv_lens)
        o = attend_rows(q, k, v, rows, self.scale, mix_exactly)
        assert len(q) == self.queries[-1]
        out.copy_(o)
        return out


class FakePrefill(Wrapper):
    def __init__(self, float_workspace_buffer, kv_layout="NHD", backend="auto"):
        super().__init__(float_workspace_buffer, kv_layout, backend=backend)

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len,
        num_qo_heads, num_kv_heads, head_dim_qk, page_size, causal=False, sm_scale=None,
        q_data_type="float16", kv_data_type=None,
    ):  # fmt: skip
        sizes = (num_qo_heads, num_kv_heads, head_dim_qk, page_size)
        given = (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, sizes)
        self.keep(qo_indptr, *given, causal, sm_scale)


class FakeDecode(Wrapper):
    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        sm_scale=None, q_data_type="float16", kv_data_type=None,
    ):  # fmt: skip
        sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        queries = torch.arange(len(indptr), dtype=torch.int32)
        self.keep(queries, indptr, indices, last_page_len, sizes, False, sm_scale)


def fake_xqa(
    query, kv_cache, workspace_buffer, block_tables, seq_lens, max_seq_len, bmm1_scale=1.0,
    bmm2_scale=1.0, out=None, kv_layout="NHD",
):  # fmt: skip
    PLANS.append(("xqa", "", len(query)))
    assert kv_layout == "NHD"
    assert seq_lens.dtype == torch.uint32
    assert bmm2_scale == 1.0
    assert max_seq_len == block_tables.shape[1] * kv_cache[0].shape[1]
    index = torch.arange(len(query), dtype=torch.int32)
    rows = Rows(
        kv_lens_B=seq_lens.view(torch.int32), before_B=None, q_starts_B=index,
        q_lens_B=torch.ones_like(index), max_q=1, decode=1,
    )  # fmt: skip
    k, v = laid(kv_cache, block_tables.long(), rows.kv_lens_B)
    out.copy_(attend_rows(query, k, v, rows, bmm1_scale, mix_exactly))
    return out


ATTENTION = planned.Library(decode=FakeDecode, prefill=FakePrefill, xqa=fake_xqa)


def fake_chunk(
    q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False,
    cu_seqlens=None, output=None, output_state=None,
):  # fmt: skip
    """``g`` is the decay itself; states are ``[N, H, V, K]``."""
    assert cu_seqlens.dtype == torch.int64
    assert output_final_state
    assert (cu_seqlens.diff() > 0).all(), "the kernel never ends over a row without tokens"
    assert g.dtype == beta.dtype == initial_state.dtype == torch.float32
    streams = Streams(q=q.float() * scale, k=k.float(), v=v.float(), g=g.log(), beta=beta)
    bounds, T = cu_seqlens, len(q)
    token = torch.arange(T)
    row = (torch.searchsorted(bounds, token, right=True) - 1).clamp(0, len(bounds) - 2)

    class rows:
        max_q, q_lens_B, q_starts_B = T, bounds.diff(), bounds[:-1]
        row_T, col_T = row, token - bounds[row]

    o, state = over_rows(streams, initial_state.transpose(-1, -2).contiguous(), rows)
    output.copy_(o)
    output_state.copy_(state.transpose(-1, -2))
    return output, output_state


def one_token(q, k, v, state_BHVK, A_log, a, dt_bias, b, scale, use_qk_l2norm):
    """Gates and norms are the kernel's; it is compiled for addresses that divide by 16."""
    assert all(x.data_ptr() % 16 == 0 for x in (q, k, v, state_BHVK, A_log, a, dt_bias, b))
    q, k, v = (x[:, 0].float() for x in (q, k, v))
    if use_qk_l2norm:
        q, k = l2_norm(q), l2_norm(k)
    g = -A_log.exp() * torch.nn.functional.softplus(a[:, 0].float() + dt_bias)
    state = state_BHVK.transpose(-1, -2).contiguous()
    o, state = delta_step(q * scale, k, v, g, b[:, 0].float().sigmoid(), state)
    return o[:, None], state.transpose(-1, -2)


def fake_decode_packed(
    q, k, v, state, A_log, a, dt_bias, b, scale=None, output=None, use_qk_l2norm=True
):
    """As 0.6.6 has it for an fp32 state: one state a row."""
    assert A_log.dtype == state.dtype == torch.float32
    o, after = one_token(q, k, v, state, A_log, a, dt_bias, b, scale, use_qk_l2norm)
    state.copy_(after)
    return o.to(q.dtype), state


def fake_decode_pool(
    q, k, v, state, A_log, a, dt_bias, b, scale=None, output=None, use_qk_l2norm=True,
    initial_state=None, initial_state_indices=None, output_state_indices=None,
):  # fmt: skip
    """As 0.7.4 has it: states are read and written in a pool."""
    assert state is None
    assert initial_state_indices.dtype == torch.int32
    assert A_log.dtype == initial_state.dtype == torch.float32
    at = initial_state_indices.long()
    o, after = one_token(q, k, v, initial_state[at], A_log, a, dt_bias, b, scale, use_qk_l2norm)
    initial_state.index_copy_(0, at, after)
    return o.to(q.dtype), initial_state


PACKED = delta_rule.Library(prefill=fake_chunk, decode=fake_decode_packed)
POOLED = delta_rule.Library(prefill=fake_chunk, decode=fake_decode_pool)


def fake_top_k(probs, top_k):
    """Everything from the k-th value on, ties and all."""
    assert top_k.dtype == torch.int32
    assert probs.isfinite().all()
    least = probs.sort(-1, descending=True).values.gather(-1, top_k.long()[:, None] - 1)
    kept = torch.where(probs >= least, probs, 0)
    return kept / kept.sum(-1, keepdim=True)


def fake_top_p(probs, top_p):
    assert probs.isfinite().all()
    falling = probs.sort(-1, descending=True).values
    before = falling.cumsum(-1) - falling
    count = (before < top_p[:, None]).sum(-1, keepdim=True).clamp_min(1)
    kept = torch.where(probs >= falling.gather(-1, count - 1), probs, 0)
    return kept / kept.sum(-1, keepdim=True)


SAMPLING = sampling.Library(top_k=fake_top_k, top_p=fake_top_p)


class OverFakes:
    """A backend on a CPU, for every size and dtype: the fakes compute them all."""

    def available(self, device):
        return None

    def supports(self, request):
        return None


class Fa2(OverFakes, paged.FlashInferPagedAttention):
    def library(self):
        return ATTENTION


class Fa3(Fa2, paged.Fa3PagedAttention):
    pass


class Packed(OverFakes, gated_delta.FlashInferGatedDelta):
    def library(self):
        return PACKED


class Pooled(OverFakes, gated_delta.FlashInferGatedDelta):
    def library(self):
        return POOLED


class Filtered(OverFakes, sampling.FlashInferSampling):
    def library(self):
        return SAMPLING


FA2, FA3, DELTA, FILTERED = Fa2(), Fa3(), Pooled(), Filtered()
