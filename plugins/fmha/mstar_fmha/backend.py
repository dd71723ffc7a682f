"""``paged_attention`` by TensorRT-LLM's kernels, on Blackwell."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch

from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.paged_attention import PagedAttention, reference
from mstar_core.ops.paged_attention.contract import OPERATION
from mstar_core.plugins.hardware import this_machine
from mstar_fmha.attention import Fmha, Library

CAPABILITIES = ((10, 0), (10, 3))
"""Of the devices that the kernels are built for: no other Blackwell runs them."""
DTYPES = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 128, 256)
PAGES = (16, 32, 64)
WORKSPACE = 128 << 20
"""Bytes that the library recommends."""


class FmhaPagedAttention(Backend):
    """Plans nothing, so every bucket can be captured and every decode walk be resident."""

    operation = OPERATION
    name = "fmha"
    hardware = ("cuda",)
    owner = "mstar-fmha"

    def available(self, device: str) -> Refusal | None:
        """Refuses all but compute capability 10.0 and 10.3, and a missing library."""
        here = this_machine()
        if device != "cuda" or not any(one in CAPABILITIES for one in here.cuda):
            got = ", ".join(here.names()) if device == "cuda" else f"device {device}"
            want = " or ".join(f"cuda {major}.{minor}" for major, minor in CAPABILITIES)
            return self.refusal("no-hardware", got, want, "choose another backend")
        if find_spec("flashinfer") is None:
            fix = "pip install 'mstar-fmha[library]' and what that version asks for"
            return self.refusal("no-library", "no module flashinfer", "FlashInfer", fix)
        return None

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses dtypes, widths and pages without a kernel."""
        sizes, fix = request.geometry, "change it, or choose another backend"
        if request.dtype not in DTYPES:
            return self.refusal("dtype", str(request.dtype), "bf16 or fp16", fix)
        for code, got, allowed in (
            ("head-dim", sizes["head_dim"], HEAD_DIMS),
            ("page-tokens", sizes.get("page_tokens", PAGES[0]), PAGES),
        ):
            if got not in allowed:
                want = f"one of {', '.join(map(str, allowed))}"
                return self.refusal(code, f"{code} {got}", want, fix)
        if sizes["num_heads"] % sizes["num_kv_heads"]:
            got = f"{sizes['num_heads']} heads over {sizes['num_kv_heads']}"
            return self.refusal("heads", got, "a multiple", fix)
        return None

    def bind(self, request: BindRequest) -> PagedAttention:
        """The definition around the library's attention, with a workspace."""
        workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=request.device)
        one = Fmha(library=self.library(), workspace=workspace)
        return PagedAttention(
            step=partial(reference.step, attend=one.attend),
            attend=one.attend,
            write=reference.write,
            splits=True,
        )

    def library(self) -> Library:
        """FlashInfer's own; imported here and not before."""
        decode, prefill = (import_module(f"flashinfer.{m}") for m in ("decode", "prefill"))
        return Library(
            decode=decode.trtllm_batch_decode_with_kv_cache,
            context=prefill.trtllm_batch_context_with_kv_cache,
        )


BACKEND = FmhaPagedAttention()
