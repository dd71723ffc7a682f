"""How many held-out questions a model answers right, by task: greedily, in a closed loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from mstar_core.bench.closed_loop import ClosedLoop, Heard
from mstar_core.bench.quality_tasks import Question
from mstar_core.bench.stats import Figures, figures
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.errors import RequestError
from mstar_core.model.front import Request


@frozen(kw_only=True)
class Said:
    """What was answered to one question."""

    number: int
    """Of the question."""
    text: str
    """Without reasoning, and without white space around it."""
    ids: tuple[int, ...]
    """Every token that was kept."""
    finish: str
    """Its finish reason: ``stop`` where it ended by itself."""
    error: str | None = None


@frozen(kw_only=True)
class Score:
    """One task, or one bucket of its distances (``TASK@EDGE``)."""

    name: str
    right: int
    of: int
    cut: int
    """Answers that did not end by themselves."""
    failed: int
    """Requests that were refused, or failed."""

    @property
    def accuracy(self) -> float:
        """Of all that were asked."""
        return self.right / self.of


def ask(
    engine: Engine,
    questions: Sequence[Question],
    at_once: int,
    told: Callable[[int], None] | None = None,
) -> tuple[list[Said], Figures]:
    """The answers in the order of ``questions``, ``at_once`` of them open at all times.

    ``told`` hears how many are over. Raises RequestError for a model that does not chat, and for
    messages that it does not take.
    """
    requests = [request_of(engine, question) for question in questions]
    heard = ClosedLoop(engine, told).run(requests, at_once)
    by_id = {one.request.id: one for one in heard}
    answers = [
        _said(engine, question, by_id[request.id])
        for question, request in zip(questions, requests, strict=True)
    ]
    return answers, figures([one.sample() for one in heard])


def request_of(engine: Engine, question: Question) -> Request:
    """The greedy request of a question. Raises RequestError that names it, by its number."""
    try:
        return engine.front.chat_request(
            question.messages, max_new_tokens=question.max_tokens, sampling=SamplingSettings()
        )
    except RequestError as error:
        raise error.under(f"question {question.number}") from error


def is_right(question: Question, said: Said) -> bool:
    """Whether the answer is the one, to the letter, and ended by itself."""
    return said.finish == "stop" and said.text == question.answer


def scores(questions: Sequence[Question], answers: Sequence[Said]) -> dict[str, Score]:
    """By name: each task in the order of the file, behind it the buckets of its distances."""
    groups: dict[str, list[tuple[Question, Said]]] = {}
    for question, said in zip(questions, answers, strict=True):
        groups.setdefault(question.task, []).append((question, said))
    found: dict[str, Score] = {}
    for task, pairs in groups.items():
        found[task] = _score(task, pairs)
        near_first = sorted(pairs, key=lambda pair: pair[0].distance or 0)
        buckets: dict[str, list[tuple[Question, Said]]] = {}
        for question, said in near_first:
            if question.bucket is not None:
                buckets.setdefault(question.bucket, []).append((question, said))
        found |= {name: _score(name, inside) for name, inside in buckets.items()}
    return found


def _score(name: str, pairs: Sequence[tuple[Question, Said]]) -> Score:
    return Score(
        name=name,
        right=sum(is_right(question, said) for question, said in pairs),
        of=len(pairs),
        cut=sum(said.finish == "length" for _, said in pairs),
        failed=sum(said.error is not None for _, said in pairs),
    )


def _said(engine: Engine, question: Question, heard: Heard) -> Said:
    result = heard.result()
    parts = engine.front.answer(heard.request)
    text = parts.push(engine.front.decode(result.ids)).content + parts.finish().content
    return Said(
        number=question.number,
        text=text.strip(),
        ids=tuple(result.ids),
        finish=result.finish_reason,
        error=None if result.error is None else str(result.error["got"]),
    )
