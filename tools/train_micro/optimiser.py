"""Muon for the matrices between embeddings and head, Adam for the rest.

Muon replaces the averaged gradient of a matrix by its nearest orthogonal one (five steps of a
Newton-Schulz iteration). Matrices of one shape go through it together.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

MOMENTUM, WEIGHT_DECAY, BETAS = 0.95, 0.05, (0.9, 0.99)


class Optimiser:
    """Both optimisers of one model, at ``share`` of their learning rates.

    ``share`` is a tensor, so that a step can be captured once and replayed at other rates.
    """

    def __init__(self, model: nn.Module, matrix_rate: float, rate: float, share: Tensor) -> None:
        self._matrices: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        self._rest: list[nn.Parameter] = []
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and min(weight.shape) >= 64 and "embed" not in name:
                self._matrices[weight.shape].append(weight)
            else:
                self._rest.append(weight)
        self._rate, self._matrix_rate, self._share = rate, matrix_rate, share
        self._momenta = {
            shape: torch.zeros(len(group), *shape, device=share.device)
            for shape, group in self._matrices.items()
        }
        self._means = [torch.zeros_like(weight) for weight in self._rest]
        self._squares = [torch.zeros_like(weight) for weight in self._rest]
        self._steps = torch.zeros((), device=share.device)

    @torch.no_grad()
    def step(self) -> None:
        """One step, and no gradients behind it."""
        kept = 1 - WEIGHT_DECAY * self._rate * self._share
        for shape, group in self._matrices.items():
            grads = torch.stack([weight.grad for weight in group])
            momentum = self._momenta[shape].lerp_(grads, 1 - MOMENTUM)
            update = orthogonal(grads.lerp(momentum, MOMENTUM))
            update *= self._matrix_rate * self._share * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(group, kept)
            torch._foreach_sub_(group, list(update.unbind(0)))
        self._adam()
        for weight in (*self._rest, *(w for group in self._matrices.values() for w in group)):
            weight.grad = None

    def _adam(self) -> None:
        grads = [weight.grad for weight in self._rest]
        self._steps += 1
        torch._foreach_lerp_(self._means, grads, 1 - BETAS[0])
        torch._foreach_lerp_(self._squares, torch._foreach_mul(grads, grads), 1 - BETAS[1])
        roots = torch._foreach_sqrt(self._squares)
        torch._foreach_add_(roots, 1e-8)
        updates = torch._foreach_div(self._means, roots)
        unbiased = torch.sqrt(1 - BETAS[1] ** self._steps) / (1 - BETAS[0] ** self._steps)
        torch._foreach_mul_(updates, self._rate * self._share * unbiased)
        torch._foreach_sub_(self._rest, updates)


def orthogonal(x: Tensor) -> Tensor:
    """The matrices ``[n, rows, columns]`` with their singular values near one."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[-2] > x.shape[-1]
    y = (x.mT if tall else x).bfloat16()
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = y @ y.mT
        y = a * y + (b * square + c * square @ square) @ y
    return (y.mT if tall else y).to(x.dtype)
