"""What the backends of this plugin share: where they run, and how they refuse."""

from __future__ import annotations

from importlib.util import find_spec
from typing import ClassVar

import torch

from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.plugins.hardware import this_machine

DTYPES = (torch.bfloat16, torch.float16)
WANTED = "cuda>=9.0"


class FlashInferBackend(Backend):
    """A backend whose kernels are FlashInfer's."""

    name = "flashinfer"
    hardware = ("cuda",)
    owner = "mstar-flashinfer"
    modules: ClassVar[tuple[str, ...]] = ("flashinfer",)
    """What must be importable."""

    def available(self, device: str) -> Refusal | None:
        """Refuses what is no NVIDIA GPU of capability 9.0 or more, and a missing library."""
        if device != "cuda" or not this_machine().fits(WANTED):
            here = ", ".join(this_machine().names()) if device == "cuda" else f"device {device}"
            return self.refusal("no-hardware", here, WANTED, "choose another backend")
        for module in self.modules:
            if find_spec(module) is None:
                fix = "pip install 'mstar-flashinfer[library]' and what that version asks for"
                return self.refusal("no-library", f"no module {module}", "FlashInfer", fix)
        return None

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses dtypes other than bf16 and fp16."""
        if request.dtype in DTYPES:
            return None
        fix = "choose another dtype or another backend"
        return self.refusal("dtype", str(request.dtype), "bf16 or fp16", fix)
