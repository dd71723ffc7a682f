"""``gated_delta`` in torch: the reference, whose shapes are static."""

from __future__ import annotations

from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.gated_delta import reference
from mstar_core.ops.gated_delta.contract import OPERATION, GatedDelta


class TorchGatedDelta(Backend):
    """Runs wherever torch does; leaves no checkpoints along a prefill."""

    operation = OPERATION
    name = "torch"

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses ``checkpoint_every`` and activations other than silu."""
        activation = request.geometry.get("activation", "silu")
        if activation != "silu":
            return _refusal("activation", f"activation {activation!r}", "silu")
        every = request.geometry.get("checkpoint_every")
        if every is not None:
            return _refusal("checkpoints", f"checkpoint_every {every}", "None")
        return None

    def bind(self, request: BindRequest) -> GatedDelta:
        """The reference's step."""
        return GatedDelta(step=reference.step, splits=True, snapshots=True)


def _refusal(code: str, got: str, want: str) -> Refusal:
    return Refusal(
        code=code,
        where=f"operation {OPERATION}, backend torch",
        got=got,
        want=want,
        fix="choose a backend that takes it",
        owner="torch",
    )


BACKEND = TorchGatedDelta()
