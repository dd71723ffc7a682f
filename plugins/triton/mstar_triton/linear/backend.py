"""``linear``: few rows in kernels of this plugin, the products of more rows by torch.

With more rows the weight is no longer all that is read, and a library's product wins, but on Hopper
where a gate or a residual stands behind it and tiles fill the device. What stands before and behind
a library's is a kernel here all the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.linear import Linear, reference
from mstar_core.ops.linear.contract import OPERATION
from mstar_triton.backend import Cells, TritonBackend
from mstar_triton.linear.launches import (
    DTYPES,
    Ends,
    few_rows,
    gated,
    normed,
    one_row,
    taken,
)
from mstar_triton.linear.many import many, many_rows
from mstar_triton.linear.streamed import streamed, streams


class Products:
    """The operation; it keeps what the parts of a split product count themselves in."""

    def __init__(self) -> None:
        self.cells = Cells()

    def linear(self, x_TH: Tensor, weight_FH: Tensor, bias_F: Tensor | None = None) -> Tensor:
        """See :class:`~mstar_core.ops.linear.contract.Product`."""
        if not taken(x_TH, weight_FH):
            return reference.linear(x_TH, weight_FH, bias_F)
        return self._product(x_TH, weight_FH, Ends(bias_F=bias_F))

    def norm_linear(self, x_TH: Tensor, norm_H: Tensor, weight_FH: Tensor, *, eps: float) -> Tensor:
        """See :class:`~mstar_core.ops.linear.contract.NormLinear`."""
        if not taken(x_TH, weight_FH):
            return reference.linear(normed(x_TH, norm_H, eps), weight_FH)
        return self._product(x_TH, weight_FH, Ends(norm_H=norm_H, eps=eps))

    def norm_gated(self, x_TH: Tensor, norm_H: Tensor, weight_EH: Tensor, *, eps: float) -> Tensor:
        """See :class:`~mstar_core.ops.linear.contract.NormGated`."""
        if not taken(x_TH, weight_EH):
            x_TH = normed(x_TH, norm_H, eps)
            tile = many(x_TH, weight_EH)
            if tile is not None:
                return many_rows(x_TH, weight_EH, tile)
            return gated(reference.linear(x_TH, weight_EH))
        return self._product(x_TH, weight_EH, Ends(norm_H=norm_H, eps=eps, gated=True))

    def linear_residual(
        self,
        x_TF: Tensor,
        weight_HF: Tensor,
        residual_TH: Tensor,
        bias_H: Tensor | None = None,
    ) -> Tensor:
        """See :class:`~mstar_core.ops.linear.contract.LinearResidual`."""
        if not (taken(x_TF, weight_HF) and residual_TH.stride(-1) == 1):
            tile = many(x_TF, weight_HF, residual_TH) if bias_H is None else None
            if tile is not None:
                return many_rows(x_TF, weight_HF, tile, residual_TH)
            if bias_H is None and x_TF.dim() == 2:
                return torch.addmm(residual_TH, x_TF, weight_HF.t())
            return reference.linear_residual(x_TF, weight_HF, residual_TH, bias_H)
        return self._product(x_TF, weight_HF, Ends(bias_F=bias_H, residual_TF=residual_TH))

    def _product(self, x_TH: Tensor, weight_FH: Tensor, ends: Ends) -> Tensor:
        """Streamed where the device can; else one row has a kernel, and a few have one."""
        if streams(x_TH, weight_FH):
            return streamed(x_TH, weight_FH, ends, self.cells)
        if len(x_TH) == 1:
            return one_row(x_TH, weight_FH, ends)
        return few_rows(x_TH, weight_FH, ends, self.cells)


class TritonLinear(TritonBackend):
    """bf16 and fp16 on a tensor core."""

    operation = OPERATION

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses dtypes without tensor cores."""
        if request.dtype in DTYPES:
            return None
        fix = "nothing to do: another backend computes it in this dtype"
        return self.refusal("dtype", str(request.dtype), "bf16 or fp16", fix)

    def bind(self, request: BindRequest) -> Linear:
        """The functions of :class:`Products`."""
        made = Products()
        return Linear(
            linear=made.linear,
            norm_linear=made.norm_linear,
            norm_gated=made.norm_gated,
            linear_residual=made.linear_residual,
        )


BACKEND = TritonLinear()
