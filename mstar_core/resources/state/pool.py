"""The memory of recurrent states: one tensor per block, ``[L, S, *shape]``. Slot 0 is null."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from torch import Tensor

from mstar_core.resources.base import BuildEnv
from mstar_core.resources.state.config import StateOptions


@frozen(kw_only=True, eq=False)
class SlotPool:
    """The blocks of every layer and slot, by name."""

    blocks: Mapping[str, Tensor]
    num_slots: int

    @classmethod
    def claim(cls, key: str, options: StateOptions, env: BuildEnv) -> SlotPool:
        """A slot per admitted request, and the null slot."""
        num_slots = env.max_rows + 1
        blocks = {
            name: env.claim(key, name, (options.num_layers, num_slots, *shape), dtype)
            for name, (shape, dtype) in options.blocks.items()
        }
        return cls(blocks=blocks, num_slots=num_slots)
