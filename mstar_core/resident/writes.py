"""What a resident step sends, and how often it had to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define, frozen

Run = tuple[int, np.ndarray]
"""(first flat cell of the store, int64 values)."""


@frozen(kw_only=True, eq=False)
class ResidentWrites:
    """What one resident step sends."""

    slots_B: np.ndarray
    """int64, the row of the store of each row of the step."""
    index_K: np.ndarray
    """int64, flat cells that the graph scatters."""
    value_K: np.ndarray
    runs: Sequence[Run]
    """Whole rows, to be copied before the replay, in order."""
    num_whole: int
    """Rows that are written whole."""
    num_crossing: int
    """Rows that a page was added to."""


@define(eq=False, kw_only=True)
class ResidentCounts:
    """How rows reached the device."""

    steps: int = 0
    untouched_steps: int = 0
    """Steps that sent nothing."""
    crossing_steps: int = 0
    whole_row_steps: int = 0
    whole_rows: int = 0
    displaced: int = 0
    released: int = 0


def joined(runs: Sequence[Run]) -> list[Run]:
    """Runs in order, where one that starts at the end of the one before it joins it."""
    found: list[tuple[int, list[np.ndarray]]] = []
    end = -1
    for start, values in runs:
        if not len(values):
            continue
        if start == end:
            found[-1][1].append(values)
        else:
            found.append((start, [values]))
        end = start + len(values)
    return [(start, np.concatenate(pieces)) for start, pieces in found]
