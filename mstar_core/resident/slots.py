"""Which request sits in which row of the store: a cache that can never run out.

Of ``2 * width + 2`` rows, row 0 (padding reads it, it is always zero) and the last (trash) are
never given out. A step needs at most ``width`` rows, so it always finds them, if need be by
displacing requests that were planned least recently, never one of its own. A displaced request
takes another row when it next runs, and that row is written whole. Table writes are in stream
order, so a row is free the moment it is given up.
"""

from __future__ import annotations

import numpy as np

from mstar_core.resources.table import RequestTable


class SlotCache:
    """Rows of the store by request handle."""

    def __init__(self, table: RequestTable, width: int) -> None:
        self.num_rows = 2 * width + 2
        self.trash = self.num_rows - 1
        self._slot = table.column(np.int64)
        self._owner = np.full(self.num_rows, -1, np.int64)
        self._planned = np.zeros(self.num_rows, np.int64)
        self._taken = np.zeros(self.num_rows, np.int64)
        self._free = list(range(self.num_rows - 2, 0, -1))
        self._takes = 0
        self.num_displaced = 0

    @property
    def num_free(self) -> int:
        """Rows that nobody sits in."""
        return len(self._free)

    def of(self, handles_B: np.ndarray) -> np.ndarray:
        """The rows of these requests, int64; 0 for one without."""
        slots_B: np.ndarray = self._slot[handles_B]
        return slots_B

    def seat(self, handles_B: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows for the requests of plan ``number``, and which of them were just taken (bool).

        Numbers rise from plan to plan.
        """
        slots_B = self._slot[handles_B]
        new_B = slots_B == 0
        if new_B.any():
            self._make_room(int(new_B.sum()), slots_B)
            self._take(handles_B[new_B])
            slots_B = self._slot[handles_B]
        self._planned[slots_B] = number
        return slots_B, new_B

    def touch(self, slots_B: np.ndarray, number: int) -> None:
        """These rows are used by plan ``number``."""
        self._planned[slots_B] = number

    def give_up(self, handle: int) -> None:
        """The request is over, or was moved off the device; idempotent."""
        slot = int(self._slot[handle])
        if slot:
            self._slot[handle] = 0
            self._owner[slot] = -1
            self._free.append(slot)

    def _take(self, handles_B: np.ndarray) -> None:
        """Free rows for these requests, in their order."""
        num = len(handles_B)
        slots_B = [self._free.pop() for _ in range(num)]
        self._owner[slots_B] = handles_B
        self._taken[slots_B] = np.arange(self._takes + 1, self._takes + num + 1)
        self._takes += num
        self._slot[handles_B] = slots_B

    def _make_room(self, need: int, own_B: np.ndarray) -> None:
        """Displace the least recently planned, ties by the order they took rows."""
        short = need - len(self._free)
        if short <= 0:
            return
        taken = np.flatnonzero(self._owner >= 0)
        others = taken[~np.isin(taken, own_B)]
        order = np.lexsort((self._taken[others], self._planned[others]))
        for slot in others[order[:short]]:
            self.give_up(int(self._owner[slot]))
            self.num_displaced += 1
