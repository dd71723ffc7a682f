"""What a backend plans on the host for an eager step, kept until the step's forward asks for it.

Some libraries want the lengths of a step on the host before their kernels run. Reading them back
from the device would hold the host up, and they are on the host while the step is planned::

    resource.plan    host arrays → record.schedule(plan) → a number, which travels in the plan
    forward          plan.schedule → what was kept; 0 in captured steps, which have no host part
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from attrs import define, field

KEPT = 8
"""More than the steps that are ever in flight at once."""

T = TypeVar("T")


class Schedule(Protocol):
    """Look at the plan of an eager step while its arrays are numpy arrays on the host.

    Gives a number above 0, which the forward finds as ``plan.schedule``. Starts nothing on a
    device.
    """

    def __call__(self, plan: Any) -> int: ...


@define(eq=False)
class Schedules(Generic[T]):
    """The last few values, by number."""

    _kept: list[tuple[int, T]] = field(factory=list, init=False)
    _last: int = field(default=0, init=False)

    def keep(self, value: T) -> int:
        """The number of ``value``, good while fewer than ``KEPT`` others follow."""
        self._last += 1
        self._kept = [*self._kept[1 - KEPT :], (self._last, value)]
        return self._last

    def of(self, number: int) -> T | None:
        """What ``number`` stands for; None for 0. Raises KeyError for one that is gone."""
        return dict(self._kept)[number] if number else None
