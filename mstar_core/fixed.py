"""Fixed buffers: the device memory whose addresses a captured graph may record.

Every tensor that outlives a step and that a forward may touch (pools, carry rows, static plan
blocks, edge rings) is claimed here once, before any capture, under the name of its owner. After
:meth:`FixedBuffers.seal` a claim raises: memory that a graph has recorded neither grows nor moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mstar_core.errors import SealedError, Words


class FixedBuffers:
    """All fixed buffers of one engine on one device, by (owner, name)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[tuple[str, str], Tensor] = {}
        self._sealed = False

    def claim(
        self, owner: str, name: str, shape: Sequence[int], dtype: torch.dtype, fill: float = 0
    ) -> Tensor:
        """A new tensor of ``shape`` filled with ``fill``; its address holds for the engine's life.

        Raises :class:`SealedError` once sealed, or where ``owner`` already has a ``name``.
        """
        if self._sealed:
            raise SealedError(
                where=f"fixed buffer {owner}.{name}",
                got=Words("claimed after the buffers were sealed"),
                want="every buffer claimed before the first capture",
                fix="claim it when the resource is built, at its largest size",
            )
        if (owner, name) in self._buffers:
            raise SealedError(
                where=f"fixed buffer {owner}.{name}",
                got=Words("claimed twice"),
                want="one buffer per owner and name",
                fix="keep the tensor of the first claim, or use another name",
            )
        buffer = torch.full(tuple(shape), fill, dtype=dtype, device=self.device)
        self._buffers[owner, name] = buffer
        return buffer

    def seal(self) -> None:
        """No claim is taken from here on."""
        self._sealed = True

    def of(self, owner: str) -> dict[str, Tensor]:
        """The buffers of ``owner``, by name."""
        return {name: b for (whose, name), b in self._buffers.items() if whose == owner}

    def storages(self, without: str | None = None) -> frozenset[int]:
        """The storage addresses that a graph may read or write; ``without`` leaves an owner out."""
        return frozenset(
            b.untyped_storage().data_ptr()
            for (owner, _), b in self._buffers.items()
            if owner != without
        )

    def bytes_by_owner(self) -> dict[str, int]:
        """Bytes claimed, per owner."""
        total: dict[str, int] = {}
        for (owner, _), b in self._buffers.items():
            total[owner] = total.get(owner, 0) + math.prod(b.shape) * b.element_size()
        return total

    def release(self) -> None:
        """Drop every buffer (the engine has been closed)."""
        self._buffers.clear()
