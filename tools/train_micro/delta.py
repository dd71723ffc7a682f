"""The gated delta rule over whole rows, differentiable: matrix products inside chunks of 64 tokens,
and a state passed from chunk to chunk.

With c the running sum of the log decay g inside a chunk, D_ij = exp(c_i - c_j) for j <= i, and S
the state in front of the chunk, the corrected values U solve

    (I + strictly_lower(beta K K^T * D)) U = beta V - beta e^c K S

and then O = e^c Q S + (Q K^T * D) U, and S becomes e^c_last S + (e^(c_last - c) K)^T U. All fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    q, k, v ``[T, H, D]``, g, beta ``[T, H]``; the terms ``[T / C, H, C, ...]``.
    """
    q, k, v = (_chunked(x) for x in (q, k, v))
    g, beta = (_chunked(x[..., None]) for x in (g, beta))
    total = running_sum(g)
    lower = torch.ones(CHUNK, CHUNK, device=q.device, dtype=torch.bool).tril()
    between = (total - total.mT).masked_fill(~lower, float("-inf")).exp()
    system = (beta * k @ k.mT * between).tril(-1)
    since = total.exp()
    sides = torch.cat([beta * v, beta * since * k], -1)
    k_end = (k * (total[..., -1:, :] - total).exp()).mT
    return system, sides, q * since, q @ k.mT * between, k_end, since[..., -1:, :]


@torch.compiler.disable
def running_sum(g: Tensor) -> Tensor:
    """The sum so far in each chunk; by itself, for no compiler fuses a scan well."""
    return g.cumsum(-2)


def _chunked(x: Tensor) -> Tensor:
    T, H, D = x.shape
    return x.view(T // CHUNK, CHUNK, H, D).transpose(1, 2)


def pass_state(terms: Sequence[Tensor], num_rows: int) -> Tensor:
    """The outputs ``[T, H, D]`` of ``num_rows`` rows that begin with an empty state.

    ``terms``: the solved sides, then those of :func:`chunk_terms` behind its sides.
    """
    N, H, _, D = terms[1].shape
    n = N // num_rows
    rows = [
        x.unflatten(0, (num_rows, n)).transpose(0, 1).reshape(n, num_rows * H, *x.shape[2:])
        for x in terms
    ]
    S = terms[0].new_zeros(num_rows * H, D, D)
    outputs = []
    for solved, start, chunk, end, faded in zip(*(x.unbind(0) for x in rows), strict=True):
        value, read = solved.split(D, -1)
        U = torch.baddbmm(value, read, S, alpha=-1)
        outputs.append(torch.baddbmm(chunk @ U, start, S))
        S = torch.baddbmm(faded * S, end, U)
    o = torch.stack(outputs).view(n, num_rows, H, CHUNK, D)
    return o.permute(1, 0, 3, 2, 4).reshape(-1, H, D)
