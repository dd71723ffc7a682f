"""The cells of one row: every narrow column first, then one span per paged column.

::

    cell   0          1          2        3       4 …            4 + W
           kv.length  position…  state.…  carry…  kv.pages [W]   cross_kv.pages [W']

Columns are keyed by resource key, so a node may have any number of pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from attrs import frozen
from torch import Tensor

from mstar_core.resources.resident import Column

Place = tuple[str, str]
"""(resource key, column name)."""


@frozen(kw_only=True, eq=False)
class RowLayout:
    """Where each column lies in a row of int64 cells."""

    narrow: tuple[tuple[Place, Column], ...]
    spans: tuple[tuple[Place, Column], ...]
    start: Mapping[Place, int]
    """First cell of each column."""
    num_cells: int

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Column]]) -> Self:
        """The layout of every resource's columns, in the order given."""
        places = [((key, c.name), c) for key, listed in columns.items() for c in listed]
        narrow = tuple(p for p in places if p[1].held is None)
        spans = tuple(p for p in places if p[1].held is not None)
        start: dict[Place, int] = {}
        at = 0
        for place, column in (*narrow, *spans):
            start[place] = at
            at += column.width
        return cls(narrow=narrow, spans=spans, start=start, num_cells=at)

    @property
    def num_narrow(self) -> int:
        """Cells before the first span."""
        return len(self.narrow)

    def truth(self, handles_B: np.ndarray) -> np.ndarray:
        """What the narrow cells of these requests should hold, int64 ``[B, narrow]``."""
        found = np.empty((len(handles_B), len(self.narrow)), np.int64)
        for i, (_, column) in enumerate(self.narrow):
            found[:, i] = column.host[handles_B]
        return found

    def held(self, handles_B: np.ndarray) -> np.ndarray:
        """How many cells of each span are in use, int64 ``[B, spans]``."""
        found = np.empty((len(handles_B), len(self.spans)), np.int64)
        for i, (_, column) in enumerate(self.spans):
            if column.held is not None:
                found[:, i] = column.held[handles_B]
        return found

    def advance(self, spans: Mapping[str, int]) -> np.ndarray:
        """What one step adds to each narrow cell, int64 ``[narrow]``; ``spans`` by resource key."""
        return np.asarray(
            [spans.get(key, 0) if c.advances else 0 for (key, _), c in self.narrow], np.int64
        )

    def cells(self, rows: Tensor) -> dict[str, dict[str, Tensor]]:
        """Gathered rows ``[B, cells]`` as columns: key → name → ``[B]`` or ``[B, width]``."""
        found: dict[str, dict[str, Tensor]] = {}
        for (key, name), column in (*self.narrow, *self.spans):
            at = self.start[key, name]
            value = rows[:, at] if column.held is None else rows[:, at : at + column.width]
            found.setdefault(key, {})[name] = value
        return found
