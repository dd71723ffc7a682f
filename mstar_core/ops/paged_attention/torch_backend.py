"""``paged_attention`` in torch: the reference around torch's own attention, shapes static."""

from __future__ import annotations

from functools import partial

from mstar_core.ops.attend import mix_fused
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.paged_attention import reference
from mstar_core.ops.paged_attention.contract import OPERATION, PagedAttention


class TorchPagedAttention(Backend):
    """Runs wherever torch does, for every dtype and geometry."""

    operation = OPERATION
    name = "torch"

    def bind(self, request: BindRequest) -> PagedAttention:
        """The reference's three functions."""
        attend = partial(reference.attend, mix=mix_fused)
        step = partial(reference.step, attend=attend)
        return PagedAttention(step=step, attend=attend, write=reference.write, splits=True)


BACKEND = TorchPagedAttention()
