"""Text through one engine to its sound: parts that are spoken together, told in order."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field

from mstar_core.errors import RequestError
from mstar_core.model.front import Front, Request
from mstar_core.model.speech import Joined

if TYPE_CHECKING:
    from mstar_core.engine import Engine
    from mstar_core.engine.events import EngineEvent

AT_ONCE = 8
"""Parts that are inside the engine together."""


@define(eq=False)
class _Part:
    """A request inside the engine."""

    request: Request
    events: queue.SimpleQueue[EngineEvent] = field(factory=queue.SimpleQueue)


@define(kw_only=True, eq=False)
class Saying:
    """One text on its way to be sound."""

    engine: Engine
    front: Front
    """What made the requests, of the model that the engine runs."""
    requests: Sequence[Request]
    """Its parts, in order."""
    rate: int = field(init=False)
    """Samples per second."""
    samples: int = field(default=0, init=False)
    first_s: float = field(default=0.0, init=False)
    """Seconds until the first sound."""
    elapsed_s: float = field(default=0.0, init=False)
    reasons: list[str] = field(factory=list, init=False)
    """How the parts that are over ended: ``stop``, or ``length`` for one that was cut off."""

    def __attrs_post_init__(self) -> None:
        self.rate = int(self.front.traits()["sample_rate"])

    @property
    def seconds(self) -> float:
        """Of sound, so far."""
        return self.samples / self.rate

    def pieces(self) -> Iterator[np.ndarray]:
        """The sound as it is made, float32 ``[T]``. However this is left, nothing runs behind it.

        Raises RequestError where a part is refused or fails.
        """
        began_s = time.monotonic()
        with closing(self._joined()) as pieces:
            for samples_T in pieces:
                self.elapsed_s = time.monotonic() - began_s
                if not len(samples_T):
                    continue
                self.first_s = self.first_s or self.elapsed_s
                self.samples += len(samples_T)
                yield samples_T

    def _joined(self) -> Generator[np.ndarray, None, None]:
        open_: deque[_Part] = deque()
        waiting = iter(self.requests)
        joined = Joined(self.rate)
        try:
            while True:
                for request in islice(waiting, AT_ONCE - len(open_)):
                    open_.append(_Part(request))
                    self.engine.submit(request, open_[-1].events.put)
                if not open_:
                    return
                last = len(self.reasons) + 1 == len(self.requests)
                for samples_T in self._sound(open_[0]):
                    yield joined.push(samples_T, last=last)
                yield joined.end()
                open_.popleft()
        finally:
            for part in open_:
                self.engine.abort(part.request.id)

    def _sound(self, part: _Part) -> Iterator[np.ndarray]:
        from mstar_core.engine.events import FinishEvent, ItemsEvent

        front = self.front
        while True:
            event = part.events.get()
            if isinstance(event, FinishEvent):
                break
            if isinstance(event, ItemsEvent):
                yield front.sound((), event.arrays)
            else:
                yield front.sound((event.token,), {})
        if event.error is not None:
            raise RequestError.of_facts(event.error)
        self.reasons.append(event.reason)
