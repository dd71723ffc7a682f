"""Differences of two runs, held against the model in fp32: could it tell the tokens apart there?

A run in fewer bits is off by so much that it may take another token wherever fp32 hardly prefers
one. So the error is measured, as the largest difference of a log probability where both run over
the same text, and a difference that fp32 finds smaller than some times that is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from attrs import frozen

from mstar_core.bench.quality import request_of
from mstar_core.bench.quality_tasks import Tasks
from mstar_core.config.sampling import MAX_LOGPROBS, SamplingSettings
from mstar_core.engine import Engine
from mstar_core.engine.events import Result
from mstar_core.engine.report import WarmupReport

PER_TASK = 8
"""Questions of each task by whose answers the error is measured."""
LEADING = 2
"""Of the likeliest tokens of fp32 at each place, those that count for the error."""
PLAIN = (
    "model.dtype=fp32",
    "engine.graphs=off",
    "engine.capture.require=false",
    "engine.in_flight=0",
    "engine.prefix_cache=off",
)
DEFINITION = "torch"
"""The backend that computes an operation as it is defined."""


@frozen(kw_only=True)
class Account:
    """By how much a run was off, and what that excuses."""

    times: float
    """How many errors apart two tokens may be that cannot be told apart."""
    error: float
    """The largest difference of a log probability from fp32's, in nats."""
    compared: int
    """Log probabilities that were compared."""

    @property
    def bound(self) -> float:
        """The largest margin of a tie, in nats."""
        return self.times * self.error


def plain_sets(report: WarmupReport) -> tuple[str, ...]:
    """What turns the configuration of ``report`` into fp32's: step by step, by the definitions."""
    backends = [
        f"nodes.{choice.node}.backends.{choice.operation}={DEFINITION}"
        for node in report.nodes
        for choice in node.choices
        if any(name.split()[0] == DEFINITION for name in (choice.name, *choice.behind))
    ]
    return (*PLAIN, *dict.fromkeys(backends))


def likeliest(engine: Engine, tasks: Tasks) -> list[Result]:
    """Greedy answers to the first questions of each task, with the likeliest tokens."""
    sampling = SamplingSettings(logprobs=MAX_LOGPROBS)
    questions = tasks.first(PER_TASK).questions
    return engine.run([attrs.evolve(request_of(engine, q), sampling=sampling) for q in questions])


def account(times: float, ours: Sequence[Result], plain: Sequence[Result]) -> Account:
    """The error of ``ours`` by ``plain``, both of :func:`likeliest` over the same tasks."""
    gaps = [gap for pair in zip(ours, plain, strict=True) for gap in _gaps(*pair)]
    return Account(times=times, error=max(gaps, default=0.0), compared=len(gaps))


def _gaps(ours: Result, plain: Result) -> Iterator[float]:
    """How far log probabilities are apart, up to the place where the answers part."""
    for mine, its, top, leading in zip(ours.ids, plain.ids, ours.top, plain.top, strict=False):
        told = dict(top)
        yield from (abs(value - told[id]) for id, value in leading[:LEADING] if id in told)
        if mine != its:
            return
