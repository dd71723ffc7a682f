"""Fences: memory that was given back is free once the last entry that names it is retired."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np


class Fences:
    """The number of the newest retired entry, and the pools that wait for it."""

    def __init__(self) -> None:
        self.retired = -1
        self._pools: list[IdPool] = []

    def retire(self, number: int) -> None:
        """Entry ``number`` has been read; whatever it fenced is free. Numbers come in order."""
        self.retired = number
        for pool in self._pools:
            pool.thaw(number)

    @property
    def num_cooling(self) -> int:
        """Places of all pools that wait for an entry to be retired."""
        return sum(pool.num_cooling for pool in self._pools)

    def watch(self, pool: IdPool) -> None:
        """Tell ``pool`` of every retirement."""
        self._pools.append(pool)


class IdPool:
    """Numbered places (pages, slots, rows): free, cooling behind a fence, or held.

    ``reserved`` low numbers (a sink page, a null slot) are never given out. A place that is given
    back ``kept`` is as free as any other, but is taken after all others, the longest kept first;
    until then :meth:`revive` makes it held again, with what it holds.
    """

    def __init__(self, num_ids: int, fences: Fences, reserved: int = 1) -> None:
        self.num_ids = num_ids - reserved
        self._free = OrderedDict.fromkeys(range(reserved, num_ids))
        self._held: set[int] = set()
        self._heap: list[tuple[int, int, list[int], bool]] = []
        """(fence, order, places, kept); one that was revived in the meantime is passed over."""
        self._cooling: dict[int, int] = {}
        """Place → the order of those in the heap that it was given back with."""
        self._order = 0
        self._fences = fences
        fences.watch(self)

    @property
    def num_free(self) -> int:
        """Places that can be taken now."""
        return len(self._free)

    @property
    def num_cooling(self) -> int:
        """Places given back whose fence has not been retired."""
        return len(self._cooling)

    def take(self, count: int) -> np.ndarray:
        """``count`` places, int64. The caller has asked ``num_free`` before."""
        if count > len(self._free):
            raise IndexError(f"took {count} of {len(self._free)} free places: room was not asked")
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        self._held.update(taken)
        return np.asarray(taken, dtype=np.int64)

    def give_back(self, ids: Iterable[int], fence: int, kept: bool = False) -> None:
        """Give places back; free at once if ``fence`` is retired, else when it is."""
        places = list(map(int, ids))
        for i in places:
            if i not in self._held:
                raise IndexError(f"place {i} was given back twice")
            self._held.remove(i)
        if fence <= self._fences.retired:
            for i in places:
                self._line_up(i, kept)
        else:
            self._order += 1
            self._cooling.update(dict.fromkeys(places, self._order))
            heapq.heappush(self._heap, (fence, self._order, places, kept))

    def revive(self, ids: Iterable[int]) -> None:
        """Hold these free or cooling places again, as they are."""
        for i in map(int, ids):
            if self._cooling.pop(i, None) is None:
                del self._free[i]
            self._held.add(i)

    def thaw(self, number: int) -> None:
        """Free what entry ``number`` and those before it fenced."""
        while self._heap and self._heap[0][0] <= number:
            _, order, places, kept = heapq.heappop(self._heap)
            for i in places:
                if self._cooling.get(i) == order:
                    del self._cooling[i]
                    self._line_up(i, kept)

    def _line_up(self, place: int, kept: bool) -> None:
        self._free[place] = None
        if not kept:
            self._free.move_to_end(place, last=False)
