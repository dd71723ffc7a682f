"""The definition of ``linear``."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from mstar_core.ops.functional import rms_norm


def linear(x_TH: Tensor, weight_FH: Tensor, bias_F: Tensor | None = None) -> Tensor:
    """See :class:`~mstar_core.ops.linear.contract.Product`."""
    return F.linear(x_TH, weight_FH, bias_F)


def norm_linear(x_TH: Tensor, norm_H: Tensor, weight_FH: Tensor, *, eps: float) -> Tensor:
    """See :class:`~mstar_core.ops.linear.contract.NormLinear`."""
    return F.linear(rms_norm(x_TH, norm_H, eps), weight_FH)


def norm_gated(x_TH: Tensor, norm_H: Tensor, weight_EH: Tensor, *, eps: float) -> Tensor:
    """See :class:`~mstar_core.ops.linear.contract.NormGated`."""
    gate_TF, up_TF = norm_linear(x_TH, norm_H, weight_EH, eps=eps).chunk(2, -1)
    return F.silu(gate_TF) * up_TF


def linear_residual(
    x_TF: Tensor, weight_HF: Tensor, residual_TH: Tensor, bias_H: Tensor | None = None
) -> Tensor:
    """See :class:`~mstar_core.ops.linear.contract.LinearResidual`."""
    return residual_TH + F.linear(x_TF, weight_HF, bias_H)
