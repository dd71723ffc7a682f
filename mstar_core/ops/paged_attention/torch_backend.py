"""``paged_attention`` in torch: the reference, whose shapes are static."""

from __future__ import annotations

from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.paged_attention import reference
from mstar_core.ops.paged_attention.contract import OPERATION, PagedAttention


class TorchPagedAttention(Backend):
    """Runs wherever torch does, for every dtype and geometry."""

    operation = OPERATION
    name = "torch"

    def bind(self, request: BindRequest) -> PagedAttention:
        """The reference's three functions."""
        return PagedAttention(step=reference.step, attend=reference.attend, write=reference.write)


BACKEND = TorchPagedAttention()
