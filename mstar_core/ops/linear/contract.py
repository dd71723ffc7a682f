"""Contract of ``linear``: products with weights ``[out, in]``, as checkpoints store them.

Norms are fp32 inside and cast before the product; products accumulate in fp32 on a device and
return the dtype of their input. Nothing is changed in place. No rows and zero rows are allowed.
"""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

OPERATION = "linear"
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
"""Largest absolute and relative difference to the fp32 definition, by the dtype of x."""


class Product(Protocol):
    """``x_TH @ weight_FH.T + bias_F`` → ``[T, F]``."""

    def __call__(self, x_TH: Tensor, weight_FH: Tensor, bias_F: Tensor | None = None) -> Tensor: ...


class NormLinear(Protocol):
    """``rms_norm(x_TH, norm_H, eps) @ weight_FH.T`` → ``[T, F]``; an effective weight."""

    def __call__(
        self, x_TH: Tensor, norm_H: Tensor, weight_FH: Tensor, *, eps: float
    ) -> Tensor: ...


class NormGated(Protocol):
    """``silu(gate) * up`` of ``[gate | up]``, which is :class:`NormLinear` → ``[T, F]``.

    ``weight_EH`` has 2·F rows: those of all gates, then those of what they gate. A backend may
    round both to the dtype of x before they meet, or keep them in fp32.
    """

    def __call__(
        self, x_TH: Tensor, norm_H: Tensor, weight_EH: Tensor, *, eps: float
    ) -> Tensor: ...


class LinearResidual(Protocol):
    """``residual_TH + x_TF @ weight_HF.T + bias_H`` → ``[T, H]``."""

    def __call__(
        self, x_TF: Tensor, weight_HF: Tensor, residual_TH: Tensor, bias_H: Tensor | None = None
    ) -> Tensor: ...


@frozen(kw_only=True, eq=False)
class Linear:
    """What a backend of ``linear`` binds."""

    linear: Product
    norm_linear: NormLinear
    norm_gated: NormGated
    linear_residual: LinearResidual
