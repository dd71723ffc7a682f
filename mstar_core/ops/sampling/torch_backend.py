"""``sampling`` in torch: the reference, whose shapes are static."""

from __future__ import annotations

from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.sampling import reference
from mstar_core.ops.sampling.contract import OPERATION, Sampling


class TorchSampling(Backend):
    """Runs wherever torch does, for every vocabulary."""

    operation = OPERATION
    name = "torch"

    def bind(self, request: BindRequest) -> Sampling:
        """The reference's functions."""
        return Sampling(
            sample=reference.sample,
            head_sample=reference.head_sample,
            finite=reference.finite,
            enter=reference.enter,
            penalise=reference.penalise,
            count=reference.count,
        )


BACKEND = TorchSampling()
