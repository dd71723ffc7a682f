"""A run over held-out questions as a whole: its scores, its speed, and its reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs import asdict, frozen

from mstar_core.bench.quality import Said, Score, ask, is_right, scores
from mstar_core.bench.quality_account import Account
from mstar_core.bench.quality_reference import Difference, differences, with_margins
from mstar_core.bench.quality_tasks import Tasks
from mstar_core.bench.stats import Figures
from mstar_core.engine import Engine


@frozen(kw_only=True)
class Outcome:
    """What a run came to."""

    tasks: Tasks
    answers: tuple[Said, ...]
    """In the order of the questions."""
    figures: Figures
    compared: int
    """Questions that the reference was asked too; 0 without one."""
    differences: tuple[Difference, ...]
    """Of those."""
    tie: float = 0.0
    """The largest margin of a tie, in nats."""
    account: Account | None = None
    """What ``tie`` rests on, where it was measured."""

    @property
    def scores(self) -> dict[str, Score]:
        """By task, and by ``TASK@EDGE``."""
        return scores(self.tasks.questions, self.answers)

    def below(self, required: Mapping[str, float]) -> list[str]:
        """The names of ``required`` of which a smaller share is right."""
        found = self.scores
        return [name for name, share in required.items() if found[name].accuracy < share]

    @property
    def ties(self) -> list[Difference]:
        """The differences that are ties."""
        return [one for one in self.differences if one.is_tie(self.tie)]

    @property
    def apart(self) -> list[Difference]:
        """The differences that are none."""
        return [one for one in self.differences if not one.is_tie(self.tie)]

    def judged(self, engine: Engine, tie: float, account: Account | None = None) -> Outcome:
        """With the margins of the differences by ``engine``; up to ``tie`` nats they are ties."""
        found = tuple(with_margins(engine, self.differences))
        return attrs.evolve(self, differences=found, tie=tie, account=account)

    def as_dict(self) -> dict[str, Any]:
        """Of plain values."""
        return {
            "tasks": {"file": self.tasks.file, "sha256": self.tasks.sha256},
            "scores": {
                name: {**asdict(one), "accuracy": one.accuracy} for name, one in self.scores.items()
            },
            "figures": asdict(self.figures),
            "compared": self.compared,
            "tie": self.tie,
            "account": None if self.account is None else asdict(self.account),
            "differences": [
                {
                    "number": one.question.number,
                    "task": one.question.task,
                    "answer": one.question.answer,
                    "here": one.here.text,
                    "there": one.there.text,
                    "token": one.at,
                    "margin": one.margin,
                    "is_tie": one.is_tie(self.tie),
                }
                for one in self.differences
            ],
            "answers": [
                {**asdict(said), "task": question.task, "right": is_right(question, said)}
                for question, said in zip(self.tasks.questions, self.answers, strict=True)
            ],
        }


def measure(
    engine: Engine,
    tasks: Tasks,
    at_once: int,
    reference: Mapping[int, Said] | None = None,
    told: Callable[[int], None] | None = None,
) -> Outcome:
    """Ask everything, and compare with the answers of ``reference`` by the question's number.

    Differences have no margins until they are :meth:`~Outcome.judged`.

    Raises RequestError for a model that does not chat, MstarError where the engine ends.
    """
    given = reference or {}
    answers, figures = ask(engine, tasks.questions, at_once, told)
    return Outcome(
        tasks=tasks,
        answers=tuple(answers),
        figures=figures,
        compared=sum(said.number in given for said in answers),
        differences=tuple(differences(tasks.questions, answers, given)),
    )
