"""The row check of an engine: expectations by entry, compared as entries are retired."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from attrs import define, field

from mstar_core.engine.node import NodeRuntime
from mstar_core.resident.check import Expected, RowCheckCounts
from mstar_core.step import Plan, Step

log = logging.getLogger(__name__)


@define(eq=False)
class RowCheck:
    """``debug.row_check``: every resident step is compared with what the host expects of it."""

    counts: RowCheckCounts = field(factory=RowCheckCounts, init=False)
    _pending: dict[int, tuple[str, Expected]] = field(factory=dict, init=False)

    def expect(self, number: int, node: NodeRuntime, step: Step, plans: Mapping[str, Plan]) -> None:
        """Entry ``number`` is this resident step, not committed yet; ``plans`` are the host's."""
        advance_N = node.advance(step.walk)
        expected = Expected.of(node.tables.layout, step.handles_B, advance_N, plans)
        self._pending[number] = f"node {node.name}, entry {number}", expected

    def settle(self, number: int, found: Mapping[str, np.ndarray], requests: Sequence[str]) -> None:
        """The entry has been read; ``requests`` are the names of its rows."""
        where, expected = self._pending.pop(number, ("", None))
        if expected is None:
            return
        counts = self.counts
        counts.steps += 1
        counts.rows += expected.num_rows
        for wrong in expected.differences(found):
            counts.mismatches += wrong.count
            row = "row 0" if wrong.row < 0 else f"row {wrong.row} (request {requests[wrong.row]})"
            text = f"{where}, {wrong.where}, {row}: device {wrong.got}, host {wrong.want}"
            counts.first = counts.first or text
            log.error("row check: %s", text)

    def drop(self, number: int) -> None:
        """The entry has failed: there is nothing to compare."""
        self._pending.pop(number, None)

    def stats(self) -> dict[str, Any]:
        """Rows and steps compared, cells that differed, and the first of them in words."""
        return attrs.asdict(self.counts)
