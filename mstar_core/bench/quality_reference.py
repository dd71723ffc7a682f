"""Answers beside those of another run: which differ, from which token on, and by how little.

At the first token that differs two runs of the same model have each taken one of the likeliest
tokens. How far both are from the likeliest of all says whether they could be told apart at all: the
question is asked once more, with the logarithms of the likeliest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen

from mstar_core.bench.quality import Said, request_of
from mstar_core.bench.quality_tasks import Question, Tasks
from mstar_core.config.sampling import MAX_LOGPROBS, SamplingSettings
from mstar_core.engine import Engine
from mstar_core.engine.events import Result
from mstar_core.errors import RequestError, Words


@frozen(kw_only=True)
class Difference:
    """One question that two runs answered differently."""

    question: Question
    here: Said
    there: Said
    margin: float | None = field(default=None)
    """Natural logarithm of how much likelier the likeliest token is than the less likely of the two
    that were taken where the answers part; None where the model that is asked does not come there,
    where one of the two is not among its likeliest, and for one that gives no logarithms."""

    @property
    def at(self) -> int:
        """How many tokens the answers share before they part."""
        pairs = enumerate(zip(self.here.ids, self.there.ids, strict=False))
        shorter = min(len(self.here.ids), len(self.there.ids))
        return next((i for i, (a, b) in pairs if a != b), shorter)

    def is_tie(self, most: float) -> bool:
        """Whether the two tokens are as good as equally likely: ``margin`` is ``most`` or less."""
        return self.margin is not None and self.margin <= most


def read_reference(file: Path, tasks: Tasks) -> dict[int, Said]:
    """The answers of a report by the question's number.

    Raises RequestError for what is no report, and for one over other tasks or questions.
    """
    want, fix = "a report of mstar-core bench quality", "write one with --out FILE"
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        answers = [_read(one) for one in report["answers"]]
        asked = report["tasks"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = Words(f"{type(error).__name__}: {error}")
        raise RequestError(where=str(file), got=got, want=want, fix=fix) from error
    if asked != tasks.sha256:
        raise RequestError(
            where=str(file),
            got=Words(f"answers to other tasks (sha256 {asked})"),
            want=f"answers to {tasks.file} (sha256 {tasks.sha256})",
            fix="run the reference again over these tasks",
        )
    found = {said.number: said for said in answers}
    if not any(question.number in found for question in tasks.questions):
        got = Words(f"{len(found)} answers, none to a question that is asked")
        raise RequestError(where=str(file), got=got, want=want, fix=fix)
    return found


def _read(values: Mapping[str, Any]) -> Said:
    names = [name for name in attrs.fields_dict(Said) if name != "ids"]
    return Said(ids=tuple(values["ids"]), **{name: values[name] for name in names})


def differences(
    questions: Sequence[Question], answers: Sequence[Said], reference: Mapping[int, Said]
) -> list[Difference]:
    """Of the questions that both were asked, those whose tokens or ends differ."""
    return [
        Difference(question=question, here=said, there=there)
        for question, said in zip(questions, answers, strict=True)
        if (there := reference.get(question.number)) is not None
        if (said.ids, said.finish) != (there.ids, there.finish)
    ]


def with_margins(engine: Engine, found: Sequence[Difference]) -> list[Difference]:
    """``found`` with their margins: ``engine`` is asked the questions once more, all at once."""
    asked = [
        attrs.evolve(
            request_of(engine, one.question),
            max_new_tokens=one.at + 1,
            ignore_stop_ids=True,
            sampling=SamplingSettings(logprobs=MAX_LOGPROBS),
        )
        for one in found
    ]
    told = zip(found, asked, engine.run(asked), strict=True)
    return [attrs.evolve(one, margin=_margin(one, r.stop_ids, result)) for one, r, result in told]


def _margin(found: Difference, stop_ids: frozenset[int], result: Result) -> float | None:
    at = found.at
    if len(result.top) <= at or tuple(result.ids[:at]) != found.here.ids[:at]:
        return None
    top = dict(result.top[at])
    taken = [_taken(said, at, stop_ids) & top.keys() for said in (found.here, found.there)]
    if not all(taken):
        return None
    return max(top.values()) - min(max(top[id] for id in ids) for ids in taken)


def _taken(said: Said, at: int, stop_ids: frozenset[int]) -> frozenset[int]:
    """What was taken behind ``at`` tokens: one, any of ``stop_ids``, or nothing at a limit."""
    if at < len(said.ids):
        return frozenset(said.ids[at : at + 1])
    return stop_ids if said.finish == "stop" else frozenset()
