"""``codec_columns`` on a GPU: a convolution reads its input once, and is a product on the way."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest
from mstar_qwen3_tts.columns.contract import OPERATION, Columns

DTYPES = (torch.bfloat16, torch.float16)


def prepare(weight_NCK: Tensor, *, by_channel: bool) -> Tensor:
    """A product's matrix per tap, ``[K, C, N]``; ``[K, C]`` of one by channel."""
    if by_channel:
        return weight_NCK[:, 0].T.contiguous()
    return weight_NCK.permute(2, 1, 0).contiguous()


class TritonColumns(Backend):
    """bf16 and fp16 on a tensor core."""

    operation = OPERATION
    name = "triton"
    hardware = ("cuda", "rocm")
    owner = "mstar-qwen3-tts"

    def available(self, device: str) -> Refusal | None:
        """Refuses a CPU, and a machine without Triton."""
        if device == "cpu":
            fix = "nothing to do: torch computes it on a CPU"
            return self.refusal("no-hardware", "device cpu", "a GPU", fix)
        if find_spec("triton") is None:
            return self.refusal("no-triton", "no module triton", "Triton 3.6", "install triton")
        return None

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses dtypes without tensor cores."""
        if request.dtype in DTYPES:
            return None
        fix = "nothing to do: torch computes it in this dtype"
        return self.refusal("dtype", str(request.dtype), "bf16 or fp16", fix)

    def bind(self, request: BindRequest) -> Columns:
        """The launches of this package's kernels."""
        from mstar_qwen3_tts.columns import triton_launches

        return Columns(
            prepare=prepare, convolve=triton_launches.convolve, attend=triton_launches.attend
        )


BACKEND = TritonColumns()
