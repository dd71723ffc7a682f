"""Several files through one engine, each by the plan of the model: jobs in, jobs that are over out.

A job holds a few blocks of its sound. All of this is one thread's; the engine's own tells it which
requests have ended.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from mstar_core.audio import audio_blocks
from mstar_core.errors import MstarError, RequestError, Words
from mstar_core.model.front import Front, Request
from mstar_core.model.segment import Segment
from mstar_core.model.transcription import BLOCK_S, Answered, Sound, Transcription

if TYPE_CHECKING:
    from mstar_core.engine import Engine
    from mstar_core.engine.events import EngineEvent, Result

STDOUT = Path("-")
AT_ONCE = 8
"""Files that are heard together."""
LOOK_S = 0.5
"""How often a waiting run looks up, for who watches it."""


@define(kw_only=True, eq=False)
class Job:
    """One file, and what was heard of it."""

    path: str
    target: Path = STDOUT
    """Where its output goes."""
    key: str = ""
    """What that is made of, in short."""
    rate: int = 0
    """Samples per second."""
    seconds: float = 0.0
    """How long the file says that it lasts."""
    segments: list[Segment] = field(factory=list)
    """From the beginning, those of an earlier run among them."""
    state: dict[str, Any] = field(factory=dict)
    """Of the plan that an earlier run left; empty for none."""
    plan: Transcription | None = None
    running: set[str] = field(factory=set)
    """Ids of its requests inside the engine."""
    error: MstarError | None = None
    done: bool = False

    @property
    def heard_s(self) -> float:
        """Seconds for which all segments are there."""
        if self.done or self.error is not None:
            return self.seconds
        return self.plan.seconds if self.plan is not None else 0.0

    def open(self, front: Front, wishes: dict[str, Any]) -> Transcription:
        """Make the plan. Raises RequestError."""
        sound = Sound(rate=self.rate, blocks=lambda: audio_blocks(self.path, BLOCK_S))
        state = self.state or None
        self.plan = front.transcription(sound, **wishes, **({"state": state} if state else {}))
        return self.plan

    def fail(self, error: MstarError | OSError) -> None:
        """It ends here, with what it has; the error is told with the file's name in it, once."""
        if isinstance(error, OSError):
            self.error = RequestError(
                where=self.path,
                got=Words(error.strerror or error),
                want="a file that can be read",
                fix="check the file and who may read it",
            )
        else:
            self.error = error if error.where == self.path else error.under(self.path)


@define(kw_only=True, eq=False)
class Hearing:
    """One run over many jobs."""

    engine: Engine
    wishes: dict[str, Any]
    """What the front is asked for, of every file."""
    tell: Callable[[Job, list[Segment]], None]
    """Called with segments as they are final."""
    look: Callable[[], None] = lambda: None
    """Called now and then."""
    at_once: int = AT_ONCE
    _open: list[Job] = field(factory=list, init=False)
    _owner: dict[str, Job] = field(factory=dict, init=False)
    _ended: queue.SimpleQueue[Result] = field(factory=queue.SimpleQueue, init=False)

    def run(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Every job as it is over, in whatever order.

        However this is left, the requests of the others are over then, and what was heard of them
        stays in them.
        """
        waiting = iter(jobs)
        try:
            while True:
                while len(self._open) < self.at_once and (job := next(waiting, None)) is not None:
                    self._open.append(job)
                    self._go_on(job)
                yield from self._over()
                if not self._open:
                    return
                self._wait()
        finally:
            for job in self._open:
                self._leave(job)

    def _over(self) -> Iterator[Job]:
        for job in [job for job in self._open if not job.running]:
            self._open.remove(job)
            job.done = job.error is None
            yield job

    def _wait(self) -> None:
        """Until a request has ended, or it is time to look up."""
        try:
            result = self._ended.get(timeout=LOOK_S)
        except queue.Empty:
            result = None
        self.look()
        job = self._owner.pop(result.id, None) if result is not None else None
        if job is None or result is None:
            return
        job.running.discard(result.id)
        self._take(job, result)
        self._go_on(job)

    def _take(self, job: Job, result: Result) -> None:
        if job.plan is None or job.error is not None:
            return
        if result.error is not None:
            self._fail(job, RequestError.of_facts(result.error))
            return
        segments = job.plan.take(Answered.of(result))
        job.segments += segments
        self.tell(job, segments)

    def _go_on(self, job: Job) -> None:
        """Hand the engine what the plan wants next; a job that cannot go on has failed."""
        if job.error is not None:
            return
        try:
            plan = job.plan or job.open(self.engine.front, self.wishes)
            for request in plan.next():
                self._submit(job, request)
        except (MstarError, OSError) as error:
            self._fail(job, error)

    def _submit(self, job: Job, request: Request) -> None:
        from mstar_core.engine.events import FinishEvent, Result

        events: list[EngineEvent] = []
        ended = self._ended

        def listen(event: EngineEvent) -> None:
            events.append(event)
            if isinstance(event, FinishEvent):
                ended.put(Result.of(request.id, events))

        self._owner[request.id] = job
        job.running.add(request.id)
        self.engine.submit(request, listen)

    def _fail(self, job: Job, error: MstarError | OSError) -> None:
        job.fail(error)
        self._leave(job)

    def _leave(self, job: Job) -> None:
        for request_id in job.running:
            del self._owner[request_id]
            self.engine.abort(request_id)
        job.running.clear()
