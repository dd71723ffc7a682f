"""The gated delta rule over whole rows, differentiable: matrix products inside chunks of 64 tokens,
and a state passed from chunk to chunk.

With c the running sum of the log decay g inside a chunk, D_ij = exp(c_i - c_j) for j <= i, and S
the state in front of the chunk, the corrected values U solve

    (I + strictly_lower(beta K K^T * D)) U = beta V - beta e^c K S

and then O = e^c Q S + (Q K^T * D) U, and S becomes e^c_last S + (e^(c_last - c) K)^T U. All fp32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 64


class UnitLowerInverse(torch.autograd.Function):
    """``(I + N)^-1`` for strictly lower N ``[..., C, C]``, C a power of two.

    Diagonal blocks of twice the size come from those of one size: the lower left block is
    ``-T22 N21 T11``, which one product with masks gives for all blocks at once.
    """

    @staticmethod
    def forward(context: Any, lower: Tensor) -> Tensor:
        """The inverse."""
        C = lower.shape[-1]
        at = torch.arange(C, device=lower.device)
        inverse = torch.eye(C, device=lower.device, dtype=lower.dtype).expand_as(lower)
        size = 1
        while size < C:
            block = at // size
            joins = (block[:, None] == block + 1) & (block[:, None] % 2 == 1)
            inverse = inverse - inverse @ (lower * joins) @ inverse
            size *= 2
        context.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> Tensor:
        """``-T^T G T^T``, of which the strictly lower part counts."""
        (inverse,) = context.saved_tensors
        turned = inverse.mT
        return -(turned @ grads[0] @ turned).tril(-1)


def chunk_terms(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What the chunks need that doesn't depend on the state; the first is N of the system.

    q, k, v ``[B, L, H, D]``, g, beta ``[B, L, H]``; the terms ``[n, B * H, C, ...]``.
    """
    q, k, v = (_chunked(x) for x in (q, k, v))
    g, beta = (_chunked(x[..., None]) for x in (g, beta))
    total = g.cumsum(-2)
    lower = torch.ones(CHUNK, CHUNK, device=q.device, dtype=torch.bool).tril()
    between = (total - total.mT).masked_fill(~lower, float("-inf")).exp()
    system = (beta * k @ k.mT * between).tril(-1)
    since = total.exp()
    sides = torch.cat([beta * v, beta * since * k], -1)
    k_end = (k * (total[..., -1:, :] - total).exp()).mT
    return system, sides, q * since, q @ k.mT * between, k_end, since[..., -1:, :]


def _chunked(x: Tensor) -> Tensor:
    B, L, H, D = x.shape
    chunks = x.view(B, L // CHUNK, CHUNK, H, D).permute(1, 0, 3, 2, 4)
    return chunks.reshape(L // CHUNK, B * H, CHUNK, D)


def pass_state(
    solved: Tensor, q_start: Tensor, q_chunk: Tensor, k_end: Tensor, decay: Tensor, batch: int
) -> Tensor:
    """The outputs ``[B, L, H, D]`` of rows that begin with an empty state."""
    n, BH, C, _ = q_start.shape
    D = solved.shape[-1] // 2
    values, reads = solved.split(D, -1)
    S = torch.zeros(BH, D, D, device=solved.device, dtype=solved.dtype)
    outputs = []
    terms = (values, reads, q_start, q_chunk, k_end, decay)
    for value, read, start, chunk, end, faded in zip(*(x.unbind(0) for x in terms), strict=True):
        U = torch.baddbmm(value, read, S, alpha=-1)
        outputs.append(torch.baddbmm(chunk @ U, start, S))
        S = torch.baddbmm(faded * S, end, U)
    o = torch.stack(outputs).view(n, batch, BH // batch, C, D)
    return o.permute(1, 0, 3, 2, 4).reshape(batch, n * C, BH // batch, D)
