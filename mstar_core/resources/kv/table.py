"""Who owns which page of one KV pool: a block table per request, an owner count per page."""

from __future__ import annotations

import numpy as np

from mstar_core.resources.fence import Fences, IdPool
from mstar_core.resources.shared import Kept, Prefix
from mstar_core.resources.table import RequestTable


class PageTable:
    """The pages of every request in order, and how many requests own each page.

    A page with two owners is only ever read: :meth:`fork` shares the full ones and gives the
    child a page of its own for the one that is still being filled.
    """

    def __init__(
        self, table: RequestTable, fences: Fences, num_pages: int, page_tokens: int, width: int
    ) -> None:
        self.page_tokens = page_tokens
        self.width = width
        self.pool = IdPool(num_pages, fences)
        self.kept = Kept(self.pool)
        """Full pages that other requests can find; none unless the resource shares."""
        self.length = table.column(np.int64)
        """Tokens in the stream, steps in flight included."""
        self.pages = table.column(np.int32, shape=(width,))
        self.num_held = table.column(np.int64)
        self.num_life = table.column(np.int64)
        """Pages that the request may come to hold."""
        self.num_promised = table.column(np.int64)
        """Those of them that nobody else may take: all, or none."""
        self.num_published = table.column(np.int64)
        """Leading pages that others were given the chance to find."""
        self.num_away = table.column(np.int64)
        """The promise to a request whose pages are off the device."""
        self._owners_P = np.zeros(num_pages, dtype=np.int32)
        self._fence_P = np.full(num_pages, -1, dtype=np.int64)

    def pages_for(self, tokens: int) -> int:
        """Pages that ``tokens`` fill, the last one in part."""
        return -(-tokens // self.page_tokens)

    @property
    def num_owed(self) -> int:
        """Pages promised to open requests and not taken yet."""
        return int(np.maximum(self.num_promised - self.num_held, 0).sum())

    @property
    def num_growing(self) -> int:
        """Requests that hold pages, and may need more than they hold or were promised."""
        kept = np.maximum(self.num_held, self.num_promised)
        return int(np.count_nonzero((self.num_held > 0) & (kept < self.num_life)))

    def admit(self, handle: int, life: int, first: int | None) -> None:
        """``handle`` may come to hold ``life`` pages: it takes ``first``, or is promised all."""
        self.num_life[handle] = life
        if first is None:
            self.num_promised[handle] = life
        else:
            self.add(handle, first)

    def missing(self, handles_B: np.ndarray, spans_B: np.ndarray) -> np.ndarray:
        """int64 ``[B]``: new pages that each row needs to add ``spans_B`` tokens."""
        ends_B = self.length[handles_B] + spans_B
        pages_B = -(-ends_B // self.page_tokens)
        missing_B: np.ndarray = np.maximum(pages_B - self.num_held[handles_B], 0)
        return missing_B

    def grow(self, handles_B: np.ndarray, missing_B: np.ndarray) -> None:
        """Give each row ``missing_B`` more pages."""
        total = int(missing_B.sum())
        if not total:
            return
        taken = self.kept.take(total)
        starts = np.cumsum(missing_B) - missing_B
        cols = np.arange(total) + np.repeat(self.num_held[handles_B] - starts, missing_B)
        self.pages[np.repeat(handles_B, missing_B), cols] = taken
        self.num_held[handles_B] += missing_B
        self._owners_P[taken] = 1
        self._fence_P[taken] = -1

    def add(self, handle: int, count: int) -> None:
        """Give one request ``count`` more pages."""
        taken, held = self.kept.take(count), int(self.num_held[handle])
        self.pages[handle, held : held + count] = taken
        self.num_held[handle] = held + count
        self._owners_P[taken] = 1
        self._fence_P[taken] = -1

    def leave(self, handle: int, fence: int) -> None:
        """Give up every page of ``handle`` and its promise; the length stays."""
        kept = self.num_promised, self.length, self.num_life
        promised, length, life = (int(column[handle]) for column in kept)
        self.release(handle, fence)
        self.num_away[handle], self.length[handle], self.num_life[handle] = promised, length, life

    def back(self, handle: int) -> int:
        """Pages to take when ``handle`` comes back: its stream's and, unpromised, one token's."""
        length = int(self.length[handle])
        if self.num_away[handle]:
            return self.pages_for(length)
        return min(self.pages_for(length + 1), int(self.num_life[handle]))

    def come_back(self, handle: int) -> None:
        """Take pages for the length that ``handle`` left with, and its promise."""
        pages = self.back(handle)
        self.num_promised[handle], self.num_away[handle] = self.num_away[handle], 0
        self.add(handle, pages)

    def fork(self, parent: int, child: int) -> list[tuple[int, int]]:
        """``child`` continues ``parent``: full pages shared, a partial one to be copied.

        Returns the (source, destination) pages to copy before the child's first step. ``child``
        is open and holds nothing; the pool has a page for it.
        """
        full, rest = divmod(int(self.length[parent]), self.page_tokens)
        shared = self.pages[parent, :full]
        self._owners_P[shared] += 1
        self.pages[child, :full] = shared
        self.length[child] = self.length[parent]
        self.num_held[child] = full
        if not rest:
            return []
        self.add(child, 1)
        return [(int(self.pages[parent, full]), int(self.pages[child, full]))]

    def adopt(self, handle: int, pages: np.ndarray) -> None:
        """``handle``, which was opened just now, begins with these full pages.

        Pages that it has taken follow them; what its stream cannot reach then is free again.
        """
        num, life = len(pages), int(self.num_life[handle])
        own = self.pages[handle, : int(self.num_held[handle])].copy()
        own, spare = own[: life - num], own[life - num :]
        self._owners_P[spare] = 0
        self.kept.give_back(spare, -1)
        self.pool.revive(pages[self._owners_P[pages] == 0])
        self._owners_P[pages] += 1
        self.pages[handle, : num + len(own)] = np.concatenate([pages, own])
        self.num_held[handle] = num + len(own)
        self.length[handle] = num * self.page_tokens
        self.num_published[handle] = num

    def publish(self, handle: int, prefix: Prefix, length: int) -> None:
        """Let others find the pages that the first ``length`` tokens fill."""
        first, last = int(self.num_published[handle]), length // self.page_tokens
        for at in range(first, last):
            key = prefix.key((at + 1) * self.page_tokens)
            self.kept.put(key, int(self.pages[handle, at]))
        self.num_published[handle] = max(first, last)

    def release(self, handle: int, fence: int) -> None:
        """Give up every page of ``handle``; one without owners is free behind its newest fence.

        The last page goes first, so that of a kept stream the end is taken before its beginning.
        """
        num = int(self.num_held[handle])
        held = self.pages[handle, :num].copy()
        self._owners_P[held] -= 1
        self._fence_P[held] = np.maximum(self._fence_P[held], fence)
        free = held[self._owners_P[held] == 0][::-1]
        fences = self._fence_P[free]
        for last in sorted(set(fences.tolist())):
            self.kept.give_back(free[fences == last].tolist(), last)
        self.pages[handle, :num] = 0
        self.length[handle] = self.num_held[handle] = 0
        self.num_promised[handle] = self.num_away[handle] = self.num_life[handle] = 0
