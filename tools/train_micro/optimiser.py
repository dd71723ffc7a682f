"""Muon for the matrices between embeddings and head, AdamW for the rest.

Muon replaces the averaged gradient of a matrix by its nearest orthogonal one (five steps of a
Newton-Schulz iteration). Matrices of one shape go through it together.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn


class Optimiser:
    """Both optimisers of one model; ``step(share)`` uses that share of the learning rates."""

    def __init__(self, model: nn.Module, matrix_rate: float, rate: float) -> None:
        self._matrices: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        rest = []
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and min(weight.shape) >= 64 and "embed" not in name:
                self._matrices[weight.shape].append(weight)
            else:
                rest.append(weight)
        self._rate, self._matrix_rate = rate, matrix_rate
        self._momenta = {
            shape: torch.zeros(len(group), *shape, device=group[0].device)
            for shape, group in self._matrices.items()
        }
        betas, fused = (0.9, 0.99), rest[0].is_cuda
        self._adam = torch.optim.AdamW(rest, lr=rate, betas=betas, weight_decay=0, fused=fused)

    @torch.no_grad()
    def step(self, share: float) -> None:
        """One step, and no gradients behind it."""
        for shape, group in self._matrices.items():
            grads = torch.stack([weight.grad for weight in group])
            momentum = self._momenta[shape].lerp_(grads, 0.05)
            update = orthogonal(grads.lerp(momentum, 0.95))
            rate = self._matrix_rate * share * max(1.0, shape[0] / shape[1]) ** 0.5
            for weight, change in zip(group, update.unbind(0), strict=True):
                weight.mul_(1 - 0.05 * self._rate * share).add_(change, alpha=-rate)
                weight.grad = None
        for part in self._adam.param_groups:
            part["lr"] = self._rate * share
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)


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
