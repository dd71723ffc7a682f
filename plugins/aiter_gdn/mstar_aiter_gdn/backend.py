"""``gated_delta`` by AITER, on AMD GPUs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from mstar_aiter_gdn.bound import CAPTURED
from mstar_aiter_gdn.rule import DeltaRule, Library
from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.gated_delta import GatedDelta
from mstar_core.ops.gated_delta.contract import K_LAST, OPERATION
from mstar_core.ops.gated_delta.limits import beyond_silu
from mstar_core.ops.gated_delta.reference import Mixer
from mstar_core.plugins.hardware import this_machine

DTYPES = (torch.bfloat16, torch.float16)
WIDEST = 128


class AiterGatedDelta(Backend):
    """Keeps no state along a prompt: snapshots are refused, and their memory is not taken."""

    operation = OPERATION
    name = "aiter"
    hardware = ("rocm",)
    owner = "mstar-aiter-gdn"

    def available(self, device: str) -> Refusal | None:
        """Refuses what is no AMD GPU, and a machine without AITER."""
        if device != "cuda" or not this_machine().rocm:
            here = ", ".join(this_machine().names()) if device == "cuda" else f"device {device}"
            return self.refusal("no-hardware", here, "rocm", "choose another backend")
        if find_spec("aiter") is None:
            fix = "install AITER from its repository, for this version of ROCm"
            return self.refusal("no-library", "no module aiter", "AITER", fix)
        return None

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses checkpoints, activations other than silu, and sizes that nobody has tried."""
        sizes, fix = request.geometry, "choose another backend"
        width = max(sizes["k_dim"], sizes["v_dim"])
        if width > WIDEST:
            return self.refusal("head-dim", f"heads of {width}", f"at most {WIDEST}", fix)
        if sizes["num_v_heads"] % sizes["num_k_heads"]:
            got = f"{sizes['num_v_heads']} value heads over {sizes['num_k_heads']} key heads"
            return self.refusal("heads", got, "a multiple", fix)
        if request.dtype not in DTYPES:
            return self.refusal("dtype", str(request.dtype), "bf16 or fp16", fix)
        return beyond_silu(self, request)

    def capture_refusal(self, bucket: Any) -> Refusal | None:
        """Refuses buckets that may hold a longer row than is computed token by token."""
        longest, most = bucket.max_row_tokens, CAPTURED.tokens
        if longest <= most:
            return None
        return self.refusal(
            "prompt-too-long",
            f"bucket {bucket}, a row of up to {longest} tokens",
            f"at most {most}: chunks are scheduled on the host, a graph goes token by token",
            "nothing to do: its steps run eagerly, by chunks; or list it in engine.capture.tokens",
        )

    def bind(self, request: BindRequest) -> GatedDelta:
        """The definition around AITER's delta rule."""
        rule = DeltaRule(library=self.library(), dtype=request.dtype)
        return GatedDelta(
            step=Mixer(recur=rule.recur).step,
            layout=K_LAST,
            splits=True,
            snapshots=False,
            schedule=rule.schedule,
        )

    def library(self) -> Library:
        """AITER's own, and FlyDSL's where it is installed; imported here and not before."""
        delta = import_module("aiter.ops.triton.gated_delta_net")
        batch, decode = import_module("aiter.ops.prefill_batch_metadata"), None
        if find_spec("flydsl") is not None:
            found = import_module("aiter.ops.flydsl.linear_attention_kernels")
            decode = found.flydsl_gdr_decode
        return Library(
            chunks=delta.chunk_gated_delta_rule_opt_vk,
            sequential=delta.fused_recurrent_gated_delta_rule,
            schedule=batch.build_gated_delta_rule_prefill_metadata,
            decode=decode,
        )


BACKEND = AiterGatedDelta()
