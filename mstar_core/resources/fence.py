"""Fences: memory that was given back is free once the last entry that names it is retired."""

from __future__ import annotations

import heapq
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

    ``reserved`` low numbers (a sink page, a null slot) are never given out.
    """

    def __init__(self, num_ids: int, fences: Fences, reserved: int = 1) -> None:
        self.num_ids = num_ids - reserved
        self._free = list(range(num_ids - 1, reserved - 1, -1))
        self._held = np.zeros(num_ids, dtype=bool)
        self._cooling: list[tuple[int, int]] = []
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
        taken = [self._free.pop() for _ in range(count)]
        self._held[taken] = True
        return np.asarray(taken, dtype=np.int64)

    def give_back(self, ids: Iterable[int], fence: int) -> None:
        """Give places back; free at once if ``fence`` is retired, else when it is."""
        for i in map(int, ids):
            if not self._held[i]:
                raise IndexError(f"place {i} was given back twice")
            self._held[i] = False
            if fence <= self._fences.retired:
                self._free.append(i)
            else:
                heapq.heappush(self._cooling, (fence, i))

    def thaw(self, number: int) -> None:
        """Free what entry ``number`` and those before it fenced."""
        while self._cooling and self._cooling[0][0] <= number:
            self._free.append(heapq.heappop(self._cooling)[1])
