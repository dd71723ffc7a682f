"""``gated_delta`` with FlashInfer's delta rule inside.

Window, convolution, gated norm and lead are the definition's.
"""

from __future__ import annotations

from importlib import import_module

from mstar_core.errors import Refusal
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.gated_delta import GatedDelta
from mstar_core.ops.gated_delta.contract import K_LAST, OPERATION
from mstar_core.ops.gated_delta.limits import beyond_silu
from mstar_core.ops.gated_delta.reference import Mixer
from mstar_flashinfer.backend import FlashInferBackend
from mstar_flashinfer.delta_rule import DeltaRule, Library

WIDTH = 128
"""Keys and values of a head: the only width of all its kernels."""


class FlashInferGatedDelta(FlashInferBackend):
    """Decode is CuTe DSL's, which compiles in every process anew."""

    operation = OPERATION
    modules = ("flashinfer", "cutlass")

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses checkpoints, activations other than silu, and heads that are not 128 wide."""
        sizes, fix = request.geometry, "choose another backend"
        widths = (sizes["k_dim"], sizes["v_dim"])
        if widths != (WIDTH, WIDTH):
            got = f"keys of {widths[0]}, values of {widths[1]}"
            return self.refusal("head-dim", got, f"both of {WIDTH}", fix)
        if sizes["num_v_heads"] % sizes["num_k_heads"]:
            got = f"{sizes['num_v_heads']} value heads over {sizes['num_k_heads']} key heads"
            return self.refusal("heads", got, "a multiple", fix)
        return beyond_silu(self, request) or super().supports(request)

    def bind(self, request: BindRequest) -> GatedDelta:
        """The definition around the library's delta rule."""
        library = self.library()
        rule = DeltaRule(library=library, dtype=request.dtype, by_slot=library.takes_pool)
        step = Mixer(recur=rule.recur).step
        return GatedDelta(step=step, layout=K_LAST, splits=True, snapshots=True)

    def library(self) -> Library:
        """FlashInfer's own; imported here and not before."""
        prefill, decode = (import_module(f"flashinfer.gdn_{m}") for m in ("prefill", "decode"))
        return Library(
            prefill=prefill.chunk_gated_delta_rule,
            decode=decode.gated_delta_rule_decode_pretranspose,
        )


BACKEND = FlashInferGatedDelta()
