"""The request table: every per-request value lives in a column, purged when the handle closes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class RequestTable:
    """Handles and the columns registered for them. A handle never leaves the process."""

    def __init__(self, num_handles: int) -> None:
        self.num_handles = num_handles
        self.generation = np.zeros(num_handles, dtype=np.int64)
        self._free = list(range(num_handles - 1, -1, -1))
        self._columns: list[tuple[np.ndarray, Any]] = []

    def column(self, dtype: Any, fill: Any = 0, shape: Sequence[int] = ()) -> np.ndarray:
        """An array ``[num_handles, *shape]`` that is reset to ``fill`` when a handle closes."""
        values = np.full((self.num_handles, *shape), fill, dtype=dtype)
        self._columns.append((values, fill))
        return values

    @property
    def num_free(self) -> int:
        """Handles that can be opened now."""
        return len(self._free)

    def open(self) -> int:
        """A free handle with every column at its fill."""
        return self._free.pop()

    def close(self, handle: int) -> None:
        """Purge ``handle`` from every column. It is not given out until :meth:`recycle`."""
        for values, fill in self._columns:
            values[handle] = fill
        self.generation[handle] += 1

    def recycle(self, handle: int) -> None:
        """No record names ``handle`` any more: it may be opened again."""
        self._free.append(handle)
