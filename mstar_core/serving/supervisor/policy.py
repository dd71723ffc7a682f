"""When a child that ended is started again, and when one that runs is taken for hung."""

from __future__ import annotations

from collections import deque

from attrs import define, field

from mstar_core.serving.orders import Beat

FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0


@define(kw_only=True)
class Restarts:
    """At most ``max_restarts`` in ``window_s``; at once, then after 0.5, 1, 2 … seconds."""

    max_restarts: int
    window_s: float
    total: int = 0
    _ends: deque[float] = field(factory=deque)
    _in_a_row: int = 0

    def ended(self, now: float) -> float | None:
        """The child ended unasked: seconds until it is started again, None for never."""
        self._ends.append(now)
        while self._ends[0] < now - self.window_s:
            self._ends.popleft()
        if len(self._ends) > self.max_restarts:
            return None
        self.total += 1
        self._in_a_row += 1
        if self._in_a_row == 1:
            return 0.0
        return min(FIRST_DELAY_S * 2.0 ** (self._in_a_row - 2), MAX_DELAY_S)

    def ready(self) -> None:
        """The child serves again: the next end is a first one."""
        self._in_a_row = 0


@define
class Pulse:
    """Whether a child is alive: it is heard of, and while it is busy it gets on."""

    heard: float
    """When it was last heard of (monotonic seconds)."""
    moved: float
    """When it last was idle, became busy, or had done another turn."""
    last: Beat = field(factory=Beat)

    def beat(self, beat: Beat, now: float) -> None:
        """A heartbeat has come."""
        self.heard = now
        if not (beat.busy and self.last.busy) or beat.turns != self.last.turns:
            self.moved = now
        self.last = beat

    def hung(self, now: float, limit_s: float) -> str | None:
        """What it has not done for ``limit_s``, if anything."""
        if now - self.heard > limit_s:
            return f"has not been heard of for {now - self.heard:.1f} s"
        if now - self.moved > limit_s:
            return f"has made no progress for {now - self.moved:.1f} s"
        return None
