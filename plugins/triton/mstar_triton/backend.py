"""What the backends of this plugin share: where they run, and on which dtypes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDEST = 256
"""Features of a head of attention: a tile of keys is as wide."""
FEWEST_CELLS = 4096
FUSED = {"enable_fp_fusion": True}
"""A product and a sum may be one instruction; said because Triton warns where it is left out."""
AMD = torch.version.hip is not None
"""The other vendor's compute units hold 64 KiB of shared memory, a fraction of a tile here."""


def early(x: Tensor, all_wait: bool = True) -> dict[str, Any]:
    """How a kernel is launched that sets itself up while the one before it ends.

    Every program of it must wait for that one, so not where some may return first. A kernel that
    writes more than activations lets no other begin (``gdc_launch_dependents``) before all of that
    is stored, unless what begins reads none of it before its own wait. What a kernel reads before
    it waits, besides weights, is of earlier steps: a step's plan is made by kernels that are not
    launched so, which lets nothing of it begin before the step in front has ended.
    """
    if AMD or x.device.type == "cpu" or not all_wait:
        return {"PDL": False}
    return {"PDL": True, "launch_pdl": True}


class Cells:
    """Cells that are zero before and behind every kernel, whose programs count themselves there.

    They are made when first used on a device, so not in a capture: a forward runs once before it
    is captured. Kernels that share them must follow one another.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[torch.device, int], Tensor] = {}

    def of(self, device: torch.device, count: int) -> Tensor:
        """int32, at least ``count`` of them."""
        if device.type == "cpu":  # as the interpreter runs it, nothing may be kept
            return torch.zeros(count, dtype=torch.int32)
        key = device, max(FEWEST_CELLS, 1 << (count - 1).bit_length())
        if key not in self._made:
            self._made[key] = torch.zeros(key[1], dtype=torch.int32, device=device)
        return self._made[key]


class TritonBackend(Backend):
    """A backend whose kernels are Triton's: for a GPU, and in three dtypes."""

    name = "triton"
    hardware = ("cuda", "rocm")
    owner = "mstar-triton"

    def available(self, device: str) -> Refusal | None:
        """Refuses a CPU, and a machine without Triton."""
        if device == "cpu":
            fix = "nothing to do: another backend computes it on a CPU"
            return self.refusal("no-hardware", "device cpu", "a GPU", fix)
        if find_spec("triton") is None:
            return self.refusal("no-triton", "no module triton", "Triton 3.6", "install triton")
        return None

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses dtypes other than fp32, bf16 and fp16."""
        if request.dtype in DTYPES:
            return None
        want, fix = "fp32, bf16 or fp16", "choose another dtype or another backend"
        return self.refusal("dtype", str(request.dtype), want, fix)

    def too_wide(self, request: BindRequest) -> Refusal | None:
        """Refuses heads of attention that are wider than a tile of keys."""
        width = request.geometry["head_dim"]
        if width <= WIDEST:
            return None
        fix = "choose another backend"
        return self.refusal("head-dim", f"head_dim {width}", f"at most {WIDEST}", fix)
