"""The planner of one node: what the device tables need before a resident step may run.

It keeps a copy of what every row of the store holds, advanced by the rule by which the device
advances it. What a step must send is the difference between that copy and the host's truth:

    steady step            nothing
    a row crossed a page   the new page's cell (and no length: both sides have advanced it)
    a host-planned step    the length cell of each row that it moved
    a new or displaced row the whole row, copied just before the replay

Small differences are cells that the graph scatters itself; they travel in the bucket's block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from mstar_core.fixed import FixedBuffers
from mstar_core.resident.kernels import kernels_for
from mstar_core.resident.layout import RowLayout
from mstar_core.resident.slots import SlotCache
from mstar_core.resident.writes import ResidentCounts, ResidentWrites, Run, joined
from mstar_core.resources.resident import Column, ResidentRows, RowConstants
from mstar_core.resources.table import RequestTable


class ResidentPlanner:
    """The store of one node and what it holds."""

    def __init__(
        self,
        node: str,
        columns: Mapping[str, Sequence[Column]],
        width: int,
        table: RequestTable,
        buffers: FixedBuffers,
    ) -> None:
        """``width`` is the widest capture of any resident walk of the node."""
        self.layout = RowLayout.of(columns)
        self.slots = SlotCache(table, width)
        self.counts = ResidentCounts()
        self.store_RC = buffers.claim(
            f"{node}.resident", "store", (self.slots.num_rows, self.layout.num_cells), torch.int64
        )
        self.kernels = kernels_for(self.store_RC.device)
        self._advance: dict[tuple[int, ...], Tensor] = {}
        self.constants = RowConstants.claim(buffers, f"{node}.resident", width)
        self._node, self._buffers = node, buffers
        self._holds_RN = np.zeros((self.slots.num_rows, self.layout.num_narrow), np.int64)
        self._held_RS = np.zeros((self.slots.num_rows, len(self.layout.spans)), np.int64)
        self._number = 0

    @property
    def num_bytes(self) -> int:
        """Device bytes of the store."""
        return self.store_RC.numel() * self.store_RC.element_size()

    def cells_per_row(self) -> int:
        """Small differences that one row can need at once: every narrow cell, a cell per span."""
        return self.layout.num_narrow + len(self.layout.spans)

    # -- on the host -----------------------------------------------------------------------

    def plan(self, handles_B: np.ndarray) -> ResidentWrites:
        """Seat the rows and say what must be sent; the copy of the store is brought up to date."""
        self._number += 1
        before = self.slots.num_displaced
        slots_B, new_B = self.slots.seat(handles_B, self._number)
        truth_BN, held_BS = self.layout.truth(handles_B), self.layout.held(handles_B)
        more_BS = held_BS - self._held_RS[slots_B]
        whole_B = new_B | (more_BS > 1).any(1)
        whole_B |= (more_BS < 0).any(1)
        grown = np.flatnonzero((more_BS > 0).any(1) & ~whole_B)
        index, value = self._moved(slots_B, truth_BN, ~whole_B)
        if len(grown):
            cells = self._grown(handles_B[grown], slots_B[grown], held_BS[grown])
            index, value = np.concatenate((index, cells[0])), np.concatenate((value, cells[1]))
        whole = np.flatnonzero(whole_B)
        whole = whole[np.argsort(slots_B[whole])]
        runs = self._rows(handles_B[whole], slots_B[whole], truth_BN[whole])
        self._holds_RN[slots_B], self._held_RS[slots_B] = truth_BN, held_BS
        writes = ResidentWrites(
            slots_B=slots_B,
            index_K=index,
            value_K=value,
            runs=joined(runs),
            num_whole=len(whole),
            num_crossing=len(grown),
        )
        self._count(writes, self.slots.num_displaced - before)
        return writes

    def commit(self, slots_B: np.ndarray, advance_N: np.ndarray) -> None:
        """The step was launched: the device advances its rows, so does the copy."""
        self._holds_RN[slots_B] += advance_N

    def steady(self, slots_B: np.ndarray) -> None:
        """The same rows again, and nothing of them has changed but their lengths."""
        self._number += 1
        self.slots.touch(slots_B, self._number)
        self.counts.steps += 1
        self.counts.untouched_steps += 1

    def crossed(self, handles_B: np.ndarray, slots_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Flat cells and values of the new pages of these rows, which nothing else happened to."""
        held_BS = self.layout.held(handles_B)
        index, value = self._grown(handles_B, slots_B, held_BS)
        self._held_RS[slots_B] = held_BS
        self.counts.untouched_steps -= 1
        self.counts.crossing_steps += 1
        return index, value

    def release(self, handle: int) -> None:
        """The request is over or was moved off the device: its row is free at once."""
        if self.slots.of(np.asarray([handle]))[0]:
            self.counts.released += 1
            self.slots.give_up(handle)

    def expected(self, slots_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the rows hold now: narrow cells, and cells in use per span (copies)."""
        return self._holds_RN[slots_B], self._held_RS[slots_B]

    def _moved(
        self, slots_B: np.ndarray, truth_BN: np.ndarray, small_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Narrow cells and values of the rows of ``small_B`` that are not what the store holds."""
        differs_BN = (truth_BN != self._holds_RN[slots_B]) & small_B[:, None]
        rows, cols = np.nonzero(differs_BN)
        return slots_B[rows] * self.layout.num_cells + cols, truth_BN[rows, cols]

    def _grown(
        self, handles_B: np.ndarray, slots_B: np.ndarray, held_BS: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cells and values of what these rows hold more than before, span by span."""
        index, value = [], []
        base_B = slots_B * self.layout.num_cells
        for s, (place, column) in enumerate(self.layout.spans):
            old_B = self._held_RS[slots_B, s]
            more_B = np.maximum(held_BS[:, s] - old_B, 0)
            rows = np.repeat(np.arange(len(more_B)), more_B)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(more_B) - more_B, more_B)
            cell = old_B[rows] + nth
            index.append(base_B[rows] + self.layout.start[place] + cell)
            value.append(column.host[handles_B[rows], cell].astype(np.int64))
        return np.concatenate(index), np.concatenate(value)

    def _rows(self, handles_B: np.ndarray, slots_B: np.ndarray, truth_BN: np.ndarray) -> list[Run]:
        """A run for each row, of all its cells, so that neighbours join: one copy sends them."""
        rows_BC = np.zeros((len(handles_B), self.layout.num_cells), np.int64)
        rows_BC[:, : self.layout.num_narrow] = truth_BN
        for place, column in self.layout.spans:
            start = self.layout.start[place]
            rows_BC[:, start : start + column.width] = column.host[handles_B]
        return list(zip((slots_B * self.layout.num_cells).tolist(), rows_BC, strict=True))

    def _count(self, writes: ResidentWrites, displaced: int) -> None:
        counts = self.counts
        counts.steps += 1
        counts.untouched_steps += not len(writes.index_K) and not writes.runs
        counts.crossing_steps += writes.num_crossing > 0
        counts.whole_row_steps += writes.num_whole > 0
        counts.whole_rows += writes.num_whole
        counts.displaced += displaced

    # -- inside a capture ------------------------------------------------------------------

    def begin(
        self, slots_B: Tensor, *staged: Tensor, advance_N: np.ndarray, variant: int
    ) -> tuple[dict[str, dict[str, Tensor]], ResidentRows]:
        """Scatter what was staged, read the step's rows (key → column → cells), advance them.

        ``staged`` is ``index_K, value_K, count_1``, as ``kernels.py`` has them. Every real row
        advances, stopped or not; which is why the host's lengths are exact.
        """
        given = (self.store_RC, slots_B, *staged, self.advance_tensor(advance_N))
        rows_BC, real_B, padding_B = self.kernels.begin(*given)
        rows = ResidentRows.of(real_B, padding_B, self.constants, variant)
        return self.layout.cells(rows_BC), rows

    def advance_tensor(self, advance_N: np.ndarray) -> Tensor:
        """``advance_N`` on the device, made once before the first capture that uses it."""
        key = tuple(advance_N.tolist())
        if key not in self._advance:
            name = f"advance {len(self._advance)}"
            claimed = self._buffers.claim(f"{self._node}.resident", name, (len(key),), torch.int64)
            claimed.copy_(torch.from_numpy(advance_N))
            self._advance[key] = claimed
        return self._advance[key]
