"""The delta rule on padded rows: token by token for decode, chunk by chunk for prefill. fp32.

Axes as in the contract, and L tokens of a padded row. The H / G value heads of one key head are an
axis of their own inside, so that keys are not repeated.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64


def delta_step(
    q_BGD: Tensor, k_BGD: Tensor, v_BHE: Tensor, g_BH: Tensor, beta_BH: Tensor, state_BHDE: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of every row: ``(o_BHE, state_BHDE)``."""
    B, H, D, E = state_BHDE.shape
    G = k_BGD.shape[1]
    S = (state_BHDE * g_BH.exp()[..., None, None]).view(B, G, H // G, D, E)
    read = k_BGD[:, :, None, None] @ S
    delta = beta_BH.view(B, G, -1, 1, 1) * (v_BHE.view(B, G, -1, 1, E) - read)
    S = S + k_BGD[:, :, None, :, None] * delta
    o = q_BGD[:, :, None, None] @ S
    return o.view(B, H, E), S.view(B, H, D, E)


def delta_chunks(
    q_BLGD: Tensor,
    k_BLGD: Tensor,
    v_BLHE: Tensor,
    g_BLH: Tensor,
    beta_BLH: Tensor,
    state_BHDE: Tensor,
) -> tuple[Tensor, Tensor]:
    """L tokens of every row: ``(o_BLHE, state_BHDE)``; L a multiple of ``min(CHUNK, L)``.

    Past a row's end all of k, v, g and beta are zero, so its state stays what it was. The corrected
    values of a chunk solve one unit lower triangular system, for all chunks at once; then the state
    passes through the chunks in order.
    """
    B, L, G, D = k_BLGD.shape
    H, E = v_BLHE.shape[2:]
    C = min(CHUNK, L)
    n, R = L // C, H // G
    q, k = (x.view(B, n, C, G, 1, D).permute(1, 0, 3, 4, 2, 5) for x in (q_BLGD, k_BLGD))
    v = v_BLHE.view(B, n, C, G, R, E).permute(1, 0, 3, 4, 2, 5)
    g, beta = (x.view(B, n, C, G, R).permute(1, 0, 3, 4, 2) for x in (g_BLH, beta_BLH))
    since_start = g.cumsum(-1).exp()[..., None]
    between = decay_between(g)
    system = beta[..., None] * (k @ k.transpose(-1, -2)) * between
    sides = torch.cat([beta[..., None] * v, beta[..., None] * since_start * k], -1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    values, reads = solved.split([E, D], -1)
    q_start, q_chunk = q * since_start, (q @ k.transpose(-1, -2)) * between
    k_end = (k * between[..., -1, :, None]).transpose(-1, -2)
    S, out = state_BHDE.view(B, G, R, D, E), []
    for i in range(n):
        delta = values[i] - reads[i] @ S
        out.append(q_start[i] @ S + q_chunk[i] @ delta)
        S = since_start[i, ..., -1:, :] * S + k_end[i] @ delta
    o_BLHE = torch.stack(out, 1).permute(0, 1, 4, 2, 3, 5).reshape(B, L, H, E)
    return o_BLHE, S.reshape(B, H, D, E)


def decay_between(g: Tensor) -> Tensor:
    """``[..., C, C]``: exp(g[j+1] + … + g[i]) for j <= i, else 0.

    Summed per pair and not as a difference of running sums, which loses the small decays behind
    a large one.
    """
    C = g.shape[-1]
    at = torch.arange(C, device=g.device)
    later = at[:, None] > at
    total = torch.where(later, g[..., None], 0).cumsum(-2)
    return torch.where(at[:, None] >= at, total.exp(), 0)
