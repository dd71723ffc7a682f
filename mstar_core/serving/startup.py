"""Where the time of a start went: laps of each process, and one table whose rows add up.

The engine's and the API processes' starts overlap. The table follows the one that was waited for:
what the command itself did, then the engine, then what was still missing behind it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

OTHER = "other"
EPSILON = 1e-6
"""Seconds that are none."""


@define(eq=False)
class Laps:
    """Consecutive stretches of one process's start, on the monotonic clock."""

    last: float
    rows: list[tuple[str, float]] = field(factory=list)
    """(phase, seconds), in order."""

    def mark(self, phase: str) -> None:
        """What was done since the last mark was ``phase``."""
        now = time.monotonic()
        self.rows.append((phase, now - self.last))
        self.last = now

    def mark_parts(self, parts: Mapping[str, float]) -> None:
        """What was done since the last mark were ``parts`` (phase → seconds), and something else.

        The rest is a row ``other``.
        """
        begun = self.last
        self.rows.extend(parts.items())
        self.last = time.monotonic()
        self.rows.append((OTHER, max(self.last - begun - sum(parts.values()), 0.0)))


@frozen(kw_only=True)
class Row:
    """One row of the table."""

    who: str
    """``command``, ``engine`` or ``api``."""
    phase: str
    seconds: float


@frozen(kw_only=True)
class StartUp:
    """A start from exec to ready. The seconds of ``rows`` add up to ``total_s``."""

    total_s: float
    rows: tuple[Row, ...]
    meanwhile: tuple[Row, ...]
    """What went on beside them: the API process's start until the engine was there."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": 1,
            "total_s": self.total_s,
            "rows": [{"who": r.who, "phase": r.phase, "seconds": r.seconds} for r in self.rows],
            "meanwhile": [
                {"who": r.who, "phase": r.phase, "seconds": r.seconds} for r in self.meanwhile
            ],
        }

    def lines(self) -> Iterator[str]:
        """The table a person reads."""
        yield "start-up           seconds"
        for row in self.rows:
            yield f"  {row.who:<8}{row.phase:<12}{row.seconds:>8.2f}"
        yield f"  {'total':<20}{self.total_s:>8.2f}"
        beside = ", ".join(f"{row.phase} {row.seconds:.2f}" for row in self.meanwhile)
        if beside:
            yield f"  beside it, api: {beside}"


def exec_time() -> float:
    """When this process was started, on the monotonic clock (to 10 ms)."""
    stat = Path("/proc/self/stat").read_text(encoding="ascii")
    ticks = int(stat.rpartition(")")[2].split()[19])  # since boot: field 22 of the whole line
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


def table(
    *,
    began: float,
    spawned: float,
    engine_ready: float,
    engine: Sequence[tuple[str, float]],
    api: Sequence[tuple[str, float]],
    ended: float,
) -> StartUp:
    """The table of a start.

    ``began``, ``spawned`` (of the children), ``engine_ready`` and ``ended`` are monotonic seconds;
    ``engine`` and ``api`` are their laps, of which the engine's begin at ``spawned`` and the API
    process's end at ``ended``.
    """
    rows = [Row(who="command", phase="python", seconds=spawned - began)]
    rows += [Row(who="engine", phase=phase, seconds=seconds) for phase, seconds in engine]
    tail = ended - engine_ready
    behind: list[Row] = []
    before: list[Row] = []
    for phase, seconds in reversed(api):
        inside = min(seconds, max(tail, 0.0))
        tail -= inside
        if inside > EPSILON:
            behind.append(Row(who="api", phase=phase, seconds=inside))
        if seconds - inside > EPSILON:
            before.append(Row(who="api", phase=phase, seconds=seconds - inside))
    rows += reversed(behind)
    total = ended - began
    rest = total - sum(row.seconds for row in rows)
    rows.append(Row(who=OTHER, phase="", seconds=max(rest, 0.0)))
    return StartUp(total_s=total, rows=tuple(rows), meanwhile=tuple(reversed(before)))
