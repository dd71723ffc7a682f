"""Sound of any length to text: a plan that says what to run next, and is told what came of it.

::

    plan = front.transcription(Sound.of(samples_T, 16000), language="en")
    running = plan.next()                      # sequential: one at a time; batched: several
    while running:
        for request in running:
            show(plan.take(Answered.of(run(request))))      # segments, which are now final
        running = plan.next()

A plan holds a few windows of sound at most, runs nothing by itself and knows no engine: a program
drives it with ``Engine.run`` or ``submit``, a server over its link. It is used by one thread at a
time. What it may be told of a request is only a whole answer; who is told that a request failed
leaves the plan as it is, and keeps the segments that it gave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from attrs import field, frozen

from mstar_core.model.front import Request
from mstar_core.model.segment import Segment
from mstar_core.model.walks import Reported

BLOCK_S = 30
"""Seconds of a block that :meth:`Sound.of` cuts."""


@frozen(kw_only=True, eq=False)
class Sound:
    """Mono sound that is read in blocks, from its beginning, as often as it is asked for."""

    rate: int
    """Samples per second."""
    blocks: Callable[[], Iterator[np.ndarray]]
    """float32 ``[T]``; all but the last last the same whole number of seconds, at least 1."""

    @classmethod
    def of(cls, samples_T: np.ndarray, rate: int) -> Self:
        """Sound that is in memory."""
        size = BLOCK_S * rate

        def blocks() -> Iterator[np.ndarray]:
            for start in range(0, len(samples_T), size):
                yield samples_T[start : start + size]

        return cls(rate=rate, blocks=blocks)


@frozen(kw_only=True)
class Answered:
    """What a request of a plan gave."""

    id: str
    """Of the request."""
    ids: Sequence[int]
    """Tokens, without the stop id."""
    logprobs: Sequence[float]
    """Natural, one per token."""
    stop_logprob: float | None = None
    """Of the stop id that ended it; None for an answer that ended at its limit."""
    reported: Mapping[str, Reported] = field(factory=dict)
    """What the model reports of a request, by the names of its reported outputs."""

    @classmethod
    def of(cls, result: Any) -> Self:
        """The answer in an engine's ``Result``."""
        return cls(
            id=result.id,
            ids=result.ids,
            logprobs=result.logprobs,
            stop_logprob=result.stop_logprob,
            reported=result.reported,
        )


class Transcription(ABC):
    """The plan. It begins to read the sound with the first :meth:`next`."""

    @abstractmethod
    def next(self) -> list[Request]:
        """Requests to run now; each is handed out once, and all must be answered by :meth:`take`.

        Empty while those that run have to be answered first, and where none runs: it is over.
        Reads and transforms sound, which takes a while: not for a thread that must not wait.
        Raises RequestError for sound that cannot be heard.
        """

    @abstractmethod
    def take(self, answered: Answered) -> list[Segment]:
        """The segments that this answer makes final, by time; all texts join to the transcript.

        Raises RequestError for an answer to no request of the plan that runs.
        """

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Seconds from the beginning for which all segments have been given."""

    @property
    @abstractmethod
    def duration(self) -> float | None:
        """Seconds that the sound lasts; None until it has been read."""

    @property
    @abstractmethod
    def language(self) -> str | None:
        """Code of the language spoken; None until it is known."""

    @property
    @abstractmethod
    def language_probability(self) -> float | None:
        """Of the language among all that the model knows; None where it was not detected."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Where it stands, as JSON values: ``front.transcription(sound, state=…)`` goes on there.

        Segments that were given before are not given again.
        """
