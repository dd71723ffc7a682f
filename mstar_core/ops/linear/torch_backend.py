"""``linear`` in torch: the reference."""

from __future__ import annotations

from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.linear import reference
from mstar_core.ops.linear.contract import OPERATION, Linear


class TorchLinear(Backend):
    """Runs wherever torch does."""

    operation = OPERATION
    name = "torch"

    def bind(self, request: BindRequest) -> Linear:
        """The reference's functions."""
        return Linear(
            linear=reference.linear,
            norm_linear=reference.norm_linear,
            norm_gated=reference.norm_gated,
            linear_residual=reference.linear_residual,
        )


BACKEND = TorchLinear()
