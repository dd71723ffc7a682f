"""``gated_delta`` in torch: the reference, whose shapes are static."""

from __future__ import annotations

from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.gated_delta import reference
from mstar_core.ops.gated_delta.contract import OPERATION, GatedDelta
from mstar_core.ops.gated_delta.limits import beyond_silu


class TorchGatedDelta(Backend):
    """Runs wherever torch does; leaves no checkpoints along a prefill."""

    operation = OPERATION
    name = "torch"
    owner = "torch"

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses ``checkpoint_every`` and activations other than silu."""
        return beyond_silu(self, request)

    def bind(self, request: BindRequest) -> GatedDelta:
        """The reference's step."""
        return GatedDelta(step=reference.step, splits=True, snapshots=True)


BACKEND = TorchGatedDelta()
