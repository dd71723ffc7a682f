"""Snapshots of recurrent states: copies of slots in a small pool of their own, found by key.

::

    step that ends at a boundary ── copy of the slot, behind it ──► pending ── read ──► kept
    first step of a hit          ◄── copy into the slot, before it ── pinned ◄── adopt ──┘

A snapshot that nobody has pinned stays in the line of free places: the longest unused one is taken
for the next. Copies are made in the entry of their step, in stream order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from attrs import define, field, frozen
from torch import Tensor

from mstar_core.resources.fence import Fences, IdPool
from mstar_core.resources.shared import Kept, Prefix

Copy = Callable[[], None]


@frozen(kw_only=True)
class Pending:
    """A snapshot that was queued, and waits for its step to be read."""

    length: int
    place: int
    number: int
    """The entry that writes it."""


@define(eq=False, kw_only=True)
class Snapshots:
    """The snapshots of one state resource."""

    every: int
    """Tokens between two of a stream."""
    blocks: Mapping[str, Tensor]
    """Name → ``[L, N + 1, *shape]``; place 0 is never used."""
    slots: Mapping[str, Tensor]
    """The state's own blocks, ``[L, S, *shape]``."""
    kept: Kept
    num_skipped: int = field(default=0, init=False)
    """Boundaries that went by without a free place."""
    _pins: np.ndarray = field(init=False)
    """Requests that have yet to copy each place."""
    _fences: np.ndarray = field(init=False)
    _pending: dict[int, list[Pending]] = field(factory=dict, init=False)
    _source: dict[int, int] = field(factory=dict, init=False)
    """Handle → the place that its first step copies from."""

    @classmethod
    def over(
        cls, every: int, blocks: Mapping[str, Tensor], slots: Mapping[str, Tensor], fences: Fences
    ) -> Snapshots:
        """``blocks`` are claimed for this."""
        num_places = next(iter(blocks.values())).shape[1]
        return cls(every=every, blocks=blocks, slots=slots, kept=Kept(IdPool(num_places, fences)))

    def __attrs_post_init__(self) -> None:
        num_places = self.kept.pool.num_ids + 1
        self._pins = np.zeros(num_places, dtype=np.int64)
        self._fences = np.full(num_places, -1, dtype=np.int64)

    def pin(self, handle: int, key: bytes) -> None:
        """``handle`` begins from the snapshot of ``key``, which is there."""
        place = self.kept.find(key)
        if place is None:
            raise KeyError(key)
        if not self._pins[place]:
            self.kept.pool.revive([place])
        self._pins[place] += 1
        self._source[handle] = place

    def source(self, handle: int) -> int | None:
        """The place that the first step of ``handle`` has yet to copy."""
        return self._source.get(handle)

    def unpin(self, handle: int, fence: int) -> None:
        """The copy is queued as part of entry ``fence``, or never will be."""
        place = self._source.pop(handle, None)
        if place is None:
            return
        self._pins[place] -= 1
        self._fences[place] = max(self._fences[place], fence)
        if not self._pins[place]:
            self.kept.give_back([place], int(self._fences[place]))

    def restore(self, handles_B: np.ndarray, slots_B: np.ndarray, number: int) -> Copy | None:
        """Before a step: the copies that its rows begin with. The places are free behind it."""
        if not self._source:
            return None
        pairs = []
        for handle, slot in zip(handles_B.tolist(), slots_B.tolist(), strict=True):
            place = self._source.get(handle)
            if place is not None:
                pairs.append((place, slot))
                self.unpin(handle, number)
        return partial(_copy, self.blocks, self.slots, pairs) if pairs else None

    def keep(
        self, handles_B: np.ndarray, lengths_B: np.ndarray, slots_B: np.ndarray, number: int
    ) -> Copy | None:
        """Behind a step: copies of the slots of rows that have come to a boundary."""
        pairs = []
        for row in np.flatnonzero(lengths_B % self.every == 0).tolist():
            if not self.kept.pool.num_free:
                self.num_skipped += 1
                continue
            place = int(self.kept.take(1)[0])
            self._fences[place] = -1
            queued = Pending(length=int(lengths_B[row]), place=place, number=number)
            self._pending.setdefault(int(handles_B[row]), []).append(queued)
            pairs.append((int(slots_B[row]), place))
        return partial(_copy, self.slots, self.blocks, pairs) if pairs else None

    def publish(self, handle: int, prefix: Prefix, length: int) -> None:
        """The steps to ``length`` are read and finite: their snapshots can be found."""
        queued = self._pending.get(handle, [])
        while queued and queued[0].length <= length:
            one = queued.pop(0)
            self.kept.put(prefix.key(one.length), one.place)
            self.kept.give_back([one.place], one.number)

    def close(self, handle: int, fence: int) -> None:
        """The request is over: what was not read is no snapshot."""
        self.unpin(handle, fence)
        for one in self._pending.pop(handle, ()):
            self.kept.give_back([one.place], one.number)


def _copy(
    source: Mapping[str, Tensor], target: Mapping[str, Tensor], pairs: list[tuple[int, int]]
) -> None:
    """For each pair of places, every block of all layers."""
    for name, block in source.items():
        for here, there in pairs:
            target[name][:, there].copy_(block[:, here])
