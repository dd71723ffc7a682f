"""``linear``: few rows in kernels of this plugin, the products of more rows by torch.

With more rows the weight is no longer all that is read, and a library's product wins. Its norm is
one kernel here all the same.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from attrs import frozen
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.launch import launch
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.functional import rms_norm
from mstar_core.ops.linear import Linear, reference
from mstar_core.ops.linear.contract import OPERATION
from mstar_triton.backend import AMD, FUSED, TritonBackend
from mstar_triton.linear.kernels import few_rows_kernel, norm_kernel, one_row_kernel

MOST_ROWS, MOST_ROWS_WIDE = 64, 128
"""Rows that the kernels take; every program reads all of them, so few outputs take fewer rows."""
DTYPES = (torch.bfloat16, torch.float16)
WIDE, HEAD = 4096, 65536
"""Outputs from which there are enough blocks of 32, and of 128, columns to fill a device."""


@frozen(kw_only=True, eq=False)
class Ends:
    """What stands before and behind a product; an absent part is left out."""

    norm_H: Tensor | None = None
    eps: float = 0.0
    bias_F: Tensor | None = None
    residual_TF: Tensor | None = None

    @property
    def parts(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """As the kernels take them."""
        return self.norm_H, self.bias_F, self.residual_TF


def linear(x_TH: Tensor, weight_FH: Tensor, bias_F: Tensor | None = None) -> Tensor:
    """See :class:`~mstar_core.ops.linear.contract.Product`."""
    if not taken(x_TH, weight_FH):
        return reference.linear(x_TH, weight_FH, bias_F)
    return product(x_TH, weight_FH, Ends(bias_F=bias_F))


def norm_linear(x_TH: Tensor, norm_H: Tensor, weight_FH: Tensor, *, eps: float) -> Tensor:
    """See :class:`~mstar_core.ops.linear.contract.NormLinear`."""
    if not taken(x_TH, weight_FH):
        return reference.linear(normed(x_TH, norm_H, eps), weight_FH)
    if x_TH.dtype == torch.float16 and len(x_TH) > 1:
        # Before it is scaled, x times the norm's weight may pass the range of fp16.
        return product(normed(x_TH, norm_H, eps), weight_FH, Ends())
    return product(x_TH, weight_FH, Ends(norm_H=norm_H, eps=eps))


def linear_residual(
    x_TF: Tensor, weight_HF: Tensor, residual_TH: Tensor, bias_H: Tensor | None = None
) -> Tensor:
    """See :class:`~mstar_core.ops.linear.contract.LinearResidual`."""
    if not (taken(x_TF, weight_HF) and residual_TH.stride(-1) == 1):
        return reference.linear_residual(x_TF, weight_HF, residual_TH, bias_H)
    return product(x_TF, weight_HF, Ends(bias_F=bias_H, residual_TF=residual_TH))


def normed(x_TH: Tensor, norm_H: Tensor, eps: float) -> Tensor:
    """The RMS norm of each row, in the dtype of x."""
    if x_TH.dtype not in DTYPES or x_TH.dim() != 2 or x_TH.stride(-1) != 1:
        return rms_norm(x_TH, norm_H, eps)
    (T, K), block = x_TH.shape, pow2(x_TH.shape[1])
    out_TH = x_TH.new_empty(T, K)
    launch(
        norm_kernel[(T,)],
        x_TH, norm_H, out_TH, x_TH.stride(0), eps,
        K=K, BLOCK_K=block, num_warps=4 if block <= 4096 else 8, **FUSED,
    )  # fmt: skip
    return out_TH


def taken(x_TH: Tensor, weight_FH: Tensor) -> bool:
    """Whether the kernels take it, which follows from shapes and strides alone."""
    return (
        0 < len(x_TH) <= (MOST_ROWS_WIDE if len(weight_FH) >= WIDE else MOST_ROWS)
        and x_TH.dim() == 2
        and x_TH.stride(-1) == 1
        and weight_FH.is_contiguous()
        and x_TH.dtype == weight_FH.dtype
        and x_TH.dtype in DTYPES
    )


def product(x_TH: Tensor, weight_FH: Tensor, ends: Ends) -> Tensor:
    """``[T, F]``, with everything before and behind it in one kernel."""
    (T, K), N = x_TH.shape, len(weight_FH)
    out_TF = x_TH.new_empty(T, N)
    if T == 1:
        columns = 4 if N >= WIDE else 2  # few outputs: more programs, each further ahead
        launch(
            one_row_kernel[(triton.cdiv(N, columns),)],
            x_TH, weight_FH, *ends.parts, out_TF, ends.eps,
            N=N, K=K, BLOCK_N=columns, BLOCK_K=min(4096 // columns, pow2(K)), num_warps=4, **FUSED,
        )  # fmt: skip
        return out_TF
    residual_row = 0 if ends.residual_TF is None else ends.residual_TF.stride(0)
    tile = tiles(T, N, K)
    launch(
        few_rows_kernel[(triton.cdiv(N, tile["BLOCK_N"]),)],
        x_TH, weight_FH, *ends.parts, out_TF, x_TH.stride(0), residual_row, T, ends.eps,
        N=N, K=K, **tile, **FUSED,
    )  # fmt: skip
    return out_TF


def tiles(T: int, N: int, K: int) -> dict[str, Any]:
    """A program reads its columns alone, so few outputs are many narrow and deep pipelines."""
    block_m = max(16, pow2(T))
    if N >= HEAD:
        columns, depth, warps, stages = 128, 128, 8, 3
    elif N >= WIDE:
        columns, depth, stages = (32, 256, 4) if block_m <= 32 else (64, 128, 4)
        warps = 4 if block_m <= 64 else 8
    else:
        columns, depth, warps, stages = (16, 256, 4, 6) if block_m <= 32 else (16, 128, 4, 6)
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": columns,
        "BLOCK_K": max(16, min(depth, pow2(K))),
        "num_warps": warps,
        "num_stages": 2 if AMD else stages,
    }


def pow2(n: int) -> int:
    """The power of two at or above ``n``."""
    return int(triton.next_power_of_2(n))


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
        """The three functions above."""
        return Linear(linear=linear, norm_linear=norm_linear, linear_residual=linear_residual)


BACKEND = TritonLinear()
