"""A window of a plan: what it wants run, and what was heard in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
from attrs import define, field

from mstar_core.model.front import Request
from mstar_core.model.transcription import Answered
from mstar_whisper.judging import Judged

Course = Generator[Request, Answered, Judged]
"""Yields requests, is sent their answers, and returns what was heard."""


@define(kw_only=True, eq=False)
class Window:
    """A window that is being heard."""

    first: int
    """Its first frame."""
    num_frames: int
    """Frames of sound in it."""
    course: Course
    loud_F: np.ndarray
    """Bool: these frames are in no pause."""
    request: Request | None = field()
    """What it wants run and was not handed out."""
    waits_for: str | None = None
    """Id of the request that was."""
    judged: Judged | None = None
    """What was heard, once it is over."""

    @request.default
    def _first(self) -> Request | None:
        return next(self.course)

    def handed(self) -> Iterator[Request]:
        """The request that it wants run, once."""
        if self.request is not None:
            yield self.request
            self.waits_for, self.request = self.request.id, None

    def take(self, answered: Answered) -> None:
        """The answer that it waits for."""
        self.waits_for = None
        try:
            self.request = self.course.send(answered)
        except StopIteration as end:
            self.judged = end.value
