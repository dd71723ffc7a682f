"""Softmax attention of packed queries over per-row keys: what paged and ragged attention share."""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

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


def attend_rows(q_TND: Tensor, k_BSGD: Tensor, v_BSGD: Tensor, rows: Rows, scale: float) -> Tensor:
    """``o_TND`` in the dtype of ``q_TND``; shapes depend on shapes and ``max_q`` alone.

    Keys and values at or past a row's ``kv_lens_B`` may hold anything, NaN included. Tokens that
    no row's ``q_starts_B``/``q_lens_B`` covers, and rows without readable keys, give zeros.
    """
    T, N, D = q_TND.shape
    B, S = k_BSGD.shape[:2]
    key_S = torch.arange(S, device=q_TND.device)
    readable_BS = key_S < rows.kv_lens_B[:, None]
    k_BGSD = k_BSGD.transpose(1, 2).float()
    # A weight of zero does not silence NaN, so what must not be read is replaced.
    v_BGSD = torch.where(readable_BS[:, None, :, None], v_BSGD.transpose(1, 2), 0).float()
    if rows.decode:
        o_BCND = _mix(q_TND[:, None] * scale, k_BGSD, v_BGSD, readable_BS[:, None])
        return o_BCND[:, 0].to(q_TND.dtype)
    o_TND = q_TND.new_zeros(T + 1, N, D)  # the last place takes what belongs to no token
    block = max(16, SCORE_BUDGET // max(1, B * N * S))
    for first in range(0, rows.max_q, block):
        col_C = torch.arange(first, min(first + block, rows.max_q), device=q_TND.device)
        at_BC = torch.where(
            col_C < rows.q_lens_B[:, None], rows.q_starts_B[:, None].long() + col_C, T
        )
        seen_BCS = readable_BS[:, None]
        if rows.before_B is not None:
            seen_BCS = seen_BCS & (key_S <= (rows.before_B[:, None] + col_C)[..., None])
        q_BCND = q_TND[at_BC.clamp_max(T - 1)] * scale
        o_TND[at_BC] = _mix(q_BCND, k_BGSD, v_BGSD, seen_BCS).to(q_TND.dtype)
    return o_TND[:T]


def _mix(q_BCND: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, seen_BCS: Tensor) -> Tensor:
    """Softmax of the seen scores, times values. Nothing seen: the mean of values that are zero.

    The N / G query heads of one key head are stacked along the query axis, so that keys and
    values are not repeated.
    """
    B, C, N, D = q_BCND.shape
    G, S = k_BGSD.shape[1:3]
    R = N // G
    q = q_BCND.float().view(B, C, G, R, D).permute(0, 2, 3, 1, 4).reshape(B, G, R * C, D)
    scores = (q @ k_BGSD.transpose(-1, -2)).view(B, G, R, C, S)
    scores = scores.masked_fill(~seen_BCS[:, None, None], torch.finfo(torch.float32).min)
    o = (scores.softmax(-1).view(B, G, R * C, S) @ v_BGSD).view(B, G, R, C, D)
    return o.permute(0, 3, 1, 2, 4).reshape(B, C, N, D)
