"""Softmax attention of packed queries over per-row keys: what paged and ragged attention share."""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor
from torch.nn import functional as F

SCORE_BUDGET = 1 << 26
"""Scores held at once (fp32, 256 MiB): longer steps go block by block of query columns."""


@frozen(kw_only=True, eq=False)
class Rows:
    """Which packed queries belong to which row, and what each row may read."""

    kv_lens_B: Tensor
    """Readable keys of each row; 0 gives zeros."""
    before_B: Tensor | None
    """Absolute position of each row's first query for the causal mask; None: not causal."""
    q_starts_B: Tensor
    q_lens_B: Tensor
    max_q: int
    """Bound of ``q_lens_B``, known without reading it."""
    decode: int
    """1: token i is the only query of row i."""


class Mix(Protocol):
    """``o_BCND``: each query's mean of ``v_BGSD``, weighted by softmax over the keys it has seen.

    C queries of each row; query head n meets key head ``n // (N // G)``; scores are scaled. A query
    that has seen nothing gives zeros.
    """

    def __call__(
        self, q_BCND: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, seen_BCS: Tensor, scale: float
    ) -> Tensor: ...


def readable(num_keys: int, kv_lens_B: Tensor) -> Tensor:
    """int64 ``[B, num_keys]``: which of a row's keys to lay at each place.

    Behind the last that it may read it is that one again: a weight of zero does not silence NaN, so
    nothing else is touched.
    """
    key_S = torch.arange(num_keys, device=kv_lens_B.device)
    return torch.minimum(key_S, (kv_lens_B.long() - 1).clamp_min(0)[:, None])


def attend_rows(
    q_TND: Tensor, k_BSGD: Tensor, v_BSGD: Tensor, rows: Rows, scale: float, mix: Mix
) -> Tensor:
    """``o_TND`` in the dtype of ``q_TND``; shapes depend on shapes and ``max_q`` alone.

    Keys and values at or past a row's ``kv_lens_B`` are not seen, but must be finite where a row
    has any: see :func:`readable`. Tokens that no row's ``q_starts_B``/``q_lens_B`` covers, and rows
    without readable keys, give zeros.
    """
    T, N, D = q_TND.shape
    B, S = k_BSGD.shape[:2]
    key_S = torch.arange(S, device=q_TND.device)
    readable_BS = key_S < rows.kv_lens_B[:, None]
    k_BGSD, v_BGSD = k_BSGD.transpose(1, 2), v_BSGD.transpose(1, 2)
    if rows.decode:
        return mix(q_TND[:, None], k_BGSD, v_BGSD, readable_BS[:, None], scale)[:, 0]
    o_TND = q_TND.new_zeros(T + 1, N, D)  # the last place takes what belongs to no token
    block = max(16, SCORE_BUDGET // max(1, B * N * S))
    for first in range(0, rows.max_q, block):
        col_C = torch.arange(first, min(first + block, rows.max_q), device=q_TND.device)
        at_BC = torch.where(
            col_C < rows.q_lens_B[:, None], rows.q_starts_B[:, None].long() + col_C, T
        )
        seen_BCS = readable_BS[:, None].expand(B, len(col_C), S)
        if rows.before_B is not None:
            seen_BCS = seen_BCS & (key_S <= (rows.before_B[:, None] + col_C)[..., None])
        q_BCND = q_TND[at_BC.clamp_max(T - 1)]
        o_TND[at_BC] = mix(q_BCND, k_BGSD, v_BGSD, seen_BCS, scale)
    return o_TND[:T]


def mix_exactly(
    q_BCND: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, seen_BCS: Tensor, scale: float
) -> Tensor:
    """The definition of :class:`Mix`, in fp32."""
    (B, C, N), (G, S) = q_BCND.shape[:3], k_BGSD.shape[1:3]
    q = _grouped(q_BCND.float() * scale, G)
    scores = (q @ k_BGSD.float().transpose(-1, -2)).view(B, G, N // G, C, S)
    scores = scores.masked_fill(~seen_BCS[:, None, None], torch.finfo(torch.float32).min)
    o = scores.softmax(-1).view(B, G, -1, S) @ v_BGSD.float()
    return _none_is_zero(_apart(o, C), seen_BCS).to(q_BCND.dtype)


def mix_fused(
    q_BCND: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, seen_BCS: Tensor, scale: float
) -> Tensor:
    """:class:`Mix` by torch's own attention, in the dtype of its arguments."""
    (B, C, N), (G, S) = q_BCND.shape[:3], k_BGSD.shape[1:3]
    seen = seen_BCS[:, None].expand(B, N // G, C, S).reshape(B, 1, -1, S)
    k, v = (x.to(q_BCND.dtype) for x in (k_BGSD, v_BGSD))
    o = F.scaled_dot_product_attention(_grouped(q_BCND, G), k, v, attn_mask=seen, scale=scale)
    return _none_is_zero(_apart(o, C), seen_BCS)


def _grouped(q_BCND: Tensor, G: int) -> Tensor:
    """``[B, G, R·C, D]``: the R = N / G heads of one key head, stacked along the query axis.

    So keys and values are not repeated.
    """
    B, C, N, D = q_BCND.shape
    return q_BCND.view(B, C, G, N // G, D).permute(0, 2, 3, 1, 4).reshape(B, G, -1, D)


def _apart(o: Tensor, C: int) -> Tensor:
    """Undo :func:`_grouped`."""
    B, G, RC, D = o.shape
    return o.view(B, G, RC // C, C, D).permute(0, 3, 1, 2, 4).reshape(B, C, -1, D)


def _none_is_zero(o_BCND: Tensor, seen_BCS: Tensor) -> Tensor:
    return torch.where(seen_BCS.any(-1)[..., None, None], o_BCND, 0)
