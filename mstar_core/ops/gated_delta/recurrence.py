"""The slow obvious answer to a case of ``gated_delta``: one token and one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mstar_core.ops.gated_delta.cases import Case, Stream, stream_of, weights_of
from mstar_core.ops.gated_delta.contract import GdnWeights


def recurrence(stream: Stream, weights: GdnWeights, sizes: Case) -> tuple[Tensor, Tensor, Tensor]:
    """fp32 ``(o_TV, window_CK, state_HDE)`` of one row, one token and one head at a time."""
    G, H, D, E = sizes.num_k_heads, sizes.num_v_heads, sizes.k_dim, sizes.v_dim
    window, S, out = stream.window_CK.float(), stream.state_HDE.clone(), []
    taps, norm = weights.conv_CK.float(), weights.norm_D.float()
    for t in range(len(stream.qkv_TC)):
        taken = torch.cat([window, stream.qkv_TC[t].float()[:, None]], 1)
        window = taken[:, 1:]
        y = F.silu((taken * taps).sum(1))
        q, k, v = y[: G * D].view(G, D), y[G * D : 2 * G * D].view(G, D), y[2 * G * D :].view(H, E)
        beta = stream.b_TH[t].float().sigmoid()
        rate = F.softplus(stream.a_TH[t].float() + weights.dt_bias_H.float())
        g = -weights.A_log_H.float().exp() * rate
        for h in range(H):
            key, query = (u[h * G // H] for u in (k, q))
            key, query = (u / (u.square().sum() + 1e-6).sqrt() for u in (key, query))
            S[h] = S[h] * g[h].exp()
            S[h] += torch.outer(key, beta[h] * (v[h] - S[h].T @ key))
            o = S[h].T @ query / D**0.5
            o = o / (o.square().mean() + weights.eps).sqrt() * norm
            out.append(o * F.silu(stream.z_TV[t].float().view(H, E)[h]))
    return torch.stack(out).view(-1, H * E) if out else torch.zeros(0, H * E), window, S


def oracle(case: Case, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Per real row, :func:`recurrence`."""
    weights = weights_of(case, dtype)
    return [recurrence(stream_of(case, r, dtype), weights, case) for r in range(len(case.rows))]
