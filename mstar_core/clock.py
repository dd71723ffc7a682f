"""Where the host's time of a turn goes: laps by name, taken only while somebody asks for them."""

from __future__ import annotations

import time

from attrs import define, field


@define(eq=False)
class Laps:
    """Nanoseconds per named part of every turn, in the order they were taken."""

    turns: list[dict[str, int]] = field(factory=list, init=False)
    _last: int = field(default=0, init=False)

    def begin(self) -> None:
        """A turn begins."""
        self.turns.append({})
        self._last = time.perf_counter_ns()

    def lap(self, name: str) -> None:
        """The part ``name`` of the turn ends here, and the next one begins."""
        now = time.perf_counter_ns()
        turn = self.turns[-1]
        turn[name] = turn.get(name, 0) + now - self._last
        self._last = now
