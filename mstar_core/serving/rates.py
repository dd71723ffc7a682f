"""How fast things go by: a bucket that refills, and the pace at which requests end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

Clock = Callable[[], float]
WINDOW = 64
"""Ends that a pace is taken from."""


class Bucket:
    """Holds ``per_minute`` and refills evenly; each :meth:`take` costs one."""

    def __init__(self, per_minute: int, clock: Clock = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level = float(per_minute)
        self._at = clock()

    def take(self) -> float:
        """0 when one was there and is taken; else the seconds until one will be."""
        if self.level < 1:
            return (1 - self._level) * 60 / self.per_minute
        self._level -= 1
        return 0.0

    @property
    def level(self) -> float:
        """What is in it now."""
        now = self._clock()
        refilled = self._level + (now - self._at) * self.per_minute / 60
        self._level, self._at = min(float(self.per_minute), refilled), now
        return self._level

    @property
    def full_in_s(self) -> float:
        """Seconds until it is full again."""
        return (self.per_minute - self.level) * 60 / self.per_minute


class Pace:
    """When the last requests ended, and so when the next one may."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._ends: deque[float] = deque(maxlen=WINDOW)

    def ended(self) -> None:
        """One more has ended."""
        self._ends.append(self._clock())

    def wait_s(self, low: float = 1.0, high: float = 60.0) -> float:
        """Seconds in which one of the open requests may end, from ``low`` to ``high``.

        It is the mean time between the last ends, and what has passed since then where that is
        longer: a server in which nothing ends any more asks for longer and longer waits.
        """
        if not self._ends:
            return low
        silent = self._clock() - self._ends[-1]
        mean = (self._ends[-1] - self._ends[0]) / max(1, len(self._ends) - 1)
        return min(high, max(low, mean, silent))
