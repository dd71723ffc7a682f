"""``ragged_attention`` in torch: the reference around torch's own attention, shapes static."""

from __future__ import annotations

from functools import partial

from mstar_core.ops.attend import mix_fused
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.ragged_attention import reference
from mstar_core.ops.ragged_attention.contract import OPERATION, RaggedAttention


class TorchRaggedAttention(Backend):
    """Runs wherever torch does, for every dtype and geometry."""

    operation = OPERATION
    name = "torch"

    def bind(self, request: BindRequest) -> RaggedAttention:
        """The reference's function."""
        return RaggedAttention(attend=partial(reference.attend, mix=mix_fused))


BACKEND = TorchRaggedAttention()
