"""Where transcripts go: to stdout in the order of the files, or into a folder, a file for each."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
from attrs import define, field

from mstar_core.cli.hearing import Job
from mstar_core.cli.journal import Journal
from mstar_core.cli.output_dir import partial_of, write_whole
from mstar_core.cli.streams import shown
from mstar_core.config import Resolved
from mstar_core.errors import RequestError, Words
from mstar_core.model.segment import Segment
from mstar_core.model.transcript import Format, Task, Transcript, document

SUFFIX: dict[str, str] = {
    "text": ".txt",
    "json": ".json",
    "verbose_json": ".json",
    "srt": ".srt",
    "vtt": ".vtt",
}


def key_of(resolved: Resolved, wishes: Mapping[str, Any], path: str) -> str:
    """What an output is made of, in short: the model, the wishes and the file as it is now."""
    made = [attrs.asdict(resolved.config.model), dict(wishes)]
    with suppress(OSError):
        stat = os.stat(path)
        made.append({"size": stat.st_size, "changed": stat.st_mtime_ns})
    told = json.dumps(made, sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@define(kw_only=True, eq=False)
class Outputs(ABC):
    """What becomes of the jobs of a run."""

    style: Format
    words: bool
    """Whether the times of words are told."""
    task: Task
    jobs: Sequence[Job]

    @abstractmethod
    def add(self, job: Job, segments: Sequence[Segment]) -> None:
        """More of a job."""

    @abstractmethod
    def over(self, job: Job) -> None:
        """A job is done, or has failed."""

    @abstractmethod
    def close(self) -> None:
        """The run is over, whatever ended it: keep what was heard of the jobs that are not done."""

    def written(self, job: Job) -> str:
        """What was heard, which is marked where it is not all."""
        transcript = Transcript(
            segments=job.segments,
            seconds=job.seconds,
            task=self.task,
            language=job.plan.language if job.plan is not None else None,
        )
        told = document(transcript, self.style, words=self.words)
        if isinstance(told, str):
            return told
        head: dict[str, Any] = {"file": shown(job.path)}
        if job.error is not None:
            head["error"] = job.error.facts()
        if not job.done and not job.segments:
            told = {}
        elif not job.done:
            head |= {"partial": True, "heard_seconds": _rounded(job)}
        head |= {"seconds": round(job.seconds, 3)} if told else {}
        return json.dumps({**head, **told}, ensure_ascii=False) + "\n"


@define(kw_only=True, eq=False)
class Printed(Outputs):
    """To stdout."""

    _next: int = field(default=0, init=False)

    def add(self, job: Job, segments: Sequence[Segment]) -> None:
        pass

    def over(self, job: Job) -> None:
        jobs = self.jobs
        while self._next < len(jobs) and (jobs[self._next].done or jobs[self._next].error):
            self._print(jobs[self._next])
            self._next += 1

    def close(self) -> None:
        for job in self.jobs[self._next :]:
            if job.done or job.segments:
                self._print(job)

    def _print(self, job: Job) -> None:
        is_json = self.style in ("json", "verbose_json")
        if not (job.done or job.segments or is_json):
            return
        if not job.done and job.segments:
            told = f"{shown(job.path)} was heard up to {_rounded(job)} s of {job.seconds:.3f} s"
            print(f"Partial: {told}", file=sys.stderr)
        named = self.style == "text" and len(self.jobs) > 1
        print(f"{shown(job.path)}: " if named else "", self.written(job), sep="", end="")
        job.segments = []


@define(kw_only=True, eq=False)
class Written(Outputs):
    """Into a folder."""

    folder: Path
    overwrite: bool
    _journal: Journal = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Tell the jobs what earlier runs heard; what is there already is done, and said so."""
        self._journal = Journal(self.folder)
        for job in self.jobs:
            if job.error is None:
                self._look_back(job)

    def add(self, job: Job, segments: Sequence[Segment]) -> None:
        if job.plan is not None:
            self._journal.add(job.target, segments, job.plan.state())

    def over(self, job: Job) -> None:
        if not job.done:
            self._keep(job)
            return
        target = job.target
        write_whole(target, self.written(job))
        self._journal.finish(target)
        partial_of(target).unlink(missing_ok=True)
        job.segments = []

    def close(self) -> None:
        for job in self.jobs:
            if not job.done and job.error is None:
                self._keep(job)

    def _look_back(self, job: Job) -> None:
        target = job.target
        entry = None if self.overwrite else self._journal.entry(target)
        if entry is not None and entry.key == job.key:
            if not entry.done:
                job.segments, job.state = list(entry.segments), dict(entry.state)
                return
            if target.exists():
                job.done = True
                print(f"Skipped: {shown(job.path)}: {target} is there", file=sys.stderr)
                return
        elif target.exists() and not self.overwrite:
            job.fail(_is_there(target))
            return
        self._journal.begin(target, job.key)

    def _keep(self, job: Job) -> None:
        """Write what there is of a job that is not done, under a name that says so."""
        if not job.segments:
            return
        target = partial_of(job.target)
        write_whole(target, self.written(job))
        told = f"{shown(job.path)} was heard up to {_rounded(job)} s of {job.seconds:.3f} s"
        print(f"Partial: {told}: {target}", file=sys.stderr)


def _rounded(job: Job) -> float:
    """Seconds that the segments of a job reach."""
    return round(job.segments[-1].end if job.segments else 0.0, 3)


def _is_there(target: Path) -> RequestError:
    return RequestError(
        where=str(target),
        got=Words("an output of other settings, or of another sound"),
        want="no such file, or one that a run with these settings has written",
        fix="give --overwrite, or another --output-dir",
    )
