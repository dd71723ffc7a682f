"""AITER's and FlyDSL's functions under their own names and layouts, computed by the definitions.

Parameters follow AITER's main branch of August 2026, less those that the plugin leaves out;
``signatures.json`` holds the whole lists.
"""

import torch
from attrs import frozen

from mstar_aiter_gdn.backend import AiterGatedDelta
from mstar_aiter_gdn.rule import Library
from mstar_core.ops.functional import l2_norm
from mstar_core.ops.gated_delta.delta import delta_step
from mstar_core.ops.gated_delta.reference import Streams
from mstar_core.ops.gated_delta.reference import _recur as over_rows

CALLS = []
"""The kernels that were started, and the schedules that were made."""


@frozen
class Metadata:
    seq_lens: tuple
    chunk_size: int


def build_gated_delta_rule_prefill_metadata(seq_lens_cpu, *, cu_seqlens, chunk_size=64):
    CALLS.append("schedule")
    assert [int(n) for n in cu_seqlens.diff()] == list(seq_lens_cpu)
    return Metadata(tuple(seq_lens_cpu), chunk_size)


def packed(q, k, v, g, beta, scale, state_NHKV, bounds):
    """``[T, H, V]`` and the states behind it; ``g`` is the logarithm of the decay."""
    assert q.shape[0] == 1
    assert g.dtype == beta.dtype == torch.float32
    assert bool((g <= 0).all())
    T = q.shape[1]
    streams = Streams(q=q[0].float() * scale, k=k[0].float(), v=v[0].float(), g=g[0], beta=beta[0])
    token = torch.arange(T)
    row = (torch.searchsorted(bounds, token, right=True) - 1).clamp(0, len(bounds) - 2)

    class rows:
        max_q, q_lens_B, q_starts_B = T, bounds.diff(), bounds[:-1]
        row_T, col_T = row, (token - bounds[row]).clamp(0, T - 1)

    return over_rows(streams, state_NHKV, rows)


def chunk_gated_delta_rule_opt_vk(
    q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None, state_dtype=None, prefill_metadata=None,
    initial_state_indices=None,
):  # fmt: skip
    """States are ``[pool, H, V, K]``, read and written by index."""
    CALLS.append("chunks")
    assert output_final_state
    assert not use_qk_l2norm_in_kernel
    assert state_dtype == initial_state.dtype == torch.float32
    assert initial_state_indices.dtype == torch.int32
    assert sum(prefill_metadata.seq_lens) == q.shape[1]
    at = initial_state_indices.long()
    states = initial_state[at].transpose(-1, -2).contiguous()
    o, after = packed(q, k, v, g, beta, scale, states, cu_seqlens)
    initial_state[at] = after.transpose(-1, -2)
    return o[None].to(q.dtype), initial_state


def fused_recurrent_gated_delta_rule(
    q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None,
):  # fmt: skip
    """States are ``[N, H, K, V]``."""
    CALLS.append("sequential")
    assert output_final_state
    assert not use_qk_l2norm_in_kernel
    assert initial_state.shape[-2:] == (q.shape[-1], v.shape[-1])
    assert len(initial_state) == len(cu_seqlens) - 1
    o, after = packed(q, k, v, g, beta, scale, initial_state, cu_seqlens)
    return o[None].to(v.dtype), after


def flydsl_gdr_decode(
    query, key, value, a, b, dt_bias, A_log, indices, state, out, use_qk_l2norm, need_shuffle_state
):
    """States are ``[pool, H, V, K]``; the scale is the root of the width."""
    CALLS.append("flydsl")
    assert indices.dtype == torch.int32
    assert use_qk_l2norm
    assert not need_shuffle_state
    assert {x.dtype for x in (key, value, a, b, dt_bias, out)} == {query.dtype}
    assert state.dtype == A_log.dtype == torch.float32
    q, k, v = (x[:, 0].float() for x in (query, key, value))
    g = -A_log.exp() * torch.nn.functional.softplus(a[:, 0].float() + dt_bias.float())
    at = indices.long()
    before = state[at].transpose(-1, -2).contiguous()
    scaled, beta = l2_norm(q) * q.shape[-1] ** -0.5, b[:, 0].float().sigmoid()
    o, after = delta_step(scaled, l2_norm(k), v, g, beta, before)
    state.index_copy_(0, at, after.transpose(-1, -2).contiguous())
    out.copy_(o[:, None])


LIBRARY = Library(
    chunks=chunk_gated_delta_rule_opt_vk,
    sequential=fused_recurrent_gated_delta_rule,
    schedule=build_gated_delta_rule_prefill_metadata,
    decode=flydsl_gdr_decode,
)


class OverFakes(AiterGatedDelta):
    """On a CPU, for every size and dtype."""

    def available(self, device):
        return None

    def supports(self, request):
        return None

    def library(self):
        return LIBRARY


BACKEND = OverFakes()
