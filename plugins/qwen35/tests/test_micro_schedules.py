"""Every schedule gives each question the greedy answer that it has alone.

Two subjects: the trained checkpoint that this package holds, with questions held out from its
training, and a golden checkpoint of random weights whose states decay slowly.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import attrs
import mstar_qwen35
import numpy as np
import pytest
from attrs import field, frozen
from mstar_qwen35.model import Qwen35

from mstar_core.bench.closed_loop import ClosedLoop
from mstar_core.bench.quality_tasks import read_tasks, shipped_tasks
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.model.front import Request

MICRO = Path(mstar_qwen35.__file__).parent / "micro"
PAGE = 8
ON = 24
"""Tokens of an answer that goes on behind its end."""
MODES = {
    "eager": ("engine.graphs=off",),
    "host-planned": ("engine.graphs=recorder", "engine.resident=off"),
    "resident": ("engine.graphs=recorder", "engine.resident=auto"),
}
PRESSURES = ("none", "offload", "recompute")


@frozen(kw_only=True)
class Schedule:
    """How steps are made, planned and cut."""

    mode: str = "eager"
    chunk: int | None = None
    """Prompt tokens of a step at most; None: every prompt whole."""
    mixed: bool = False
    cache: bool = False
    pressure: str = "none"
    """What a request does that must yield its memory; ``none``: there is enough."""

    def __str__(self):
        mixed, cache = "mixed" if self.mixed else "apart", "cache" if self.cache else "cold"
        return f"{self.mode}-{self.chunk or 'whole'}-{mixed}-{cache}-{self.pressure}"


BASE = product(("host-planned", "resident"), (1, 16, 64, None), (False, True), (False, True))
EVERY = [
    Schedule(mode=mode, chunk=chunk, mixed=mixed, cache=cache, pressure=PRESSURES[i % 3])
    for i, (mode, chunk, mixed, cache) in enumerate(BASE)
]
"""Each with a pressure in turn, so that every two of the settings meet."""
SOME = [
    Schedule(mode="host-planned", chunk=64, mixed=True, pressure="offload"),
    Schedule(mode="resident", chunk=16, mixed=True, cache=True),
    Schedule(mode="resident", chunk=64, pressure="recompute"),
    Schedule(mode="resident", cache=True, pressure="offload"),
]


@frozen(kw_only=True, eq=False)
class Subject:
    """A checkpoint, its questions, and the answers that they have alone."""

    folder: Path
    asked: list[Request]
    at_once: int
    alone: list[tuple[list[int], str]] = field(factory=list)

    @property
    def needs(self):
        """Tokens of each question and its answer."""
        return [len(r.arrays["ids"]) + r.max_new_tokens for r in self.asked]

    def opened(self, schedule):
        longest = max(self.needs)
        budget = schedule.chunk or longest
        sets = (
            f"model.path={self.folder}",
            "model.dtype=fp32",
            "device=cpu",
            f"engine.max_rows={self.at_once}",
            "engine.min_chunk=1",
            f"engine.max_context={-(-longest // PAGE) * PAGE}",
            f"engine.token_budget={budget}",
            f"engine.capture.rows=[{self.at_once}]",
            f"engine.capture.tokens=[{min(budget, 16)}]",
            f"engine.mixed={'on' if schedule.mixed else 'off'}",
            f"engine.prefix_cache={'auto' if schedule.cache else 'off'}",
            "engine.admission=take",
            f"nodes.text.resources.kv.page_tokens={PAGE}",
            "nodes.text.resources.state.snapshot_every=16",
            "nodes.text.resources.state.snapshots=48",
            "debug.row_check=true",
            *MODES[schedule.mode],
        )
        if schedule.pressure != "none":
            sets += (
                f"nodes.text.resources.kv.num_pages={longest // PAGE + 3}",
                f"engine.preempt={schedule.pressure}",
            )
        return Engine.open("qwen35_tiny", sets)

    def answers(self, engine, at_once):
        """Tokens and end of each question, and how many tokens of all were found in the cache."""
        asked = [attrs.evolve(r, id=f"{n}") for n, r in enumerate(self.asked)]
        found = {h.request.id: h.result() for h in ClosedLoop(engine).run(asked, at_once)}
        results = [found[r.id] for r in asked]
        return [(r.ids, r.finish_reason) for r in results], sum(r.cached_tokens for r in results)


def with_answers(subject):
    with subject.opened(Schedule()) as engine:
        alone, _ = subject.answers(engine, 1)
    return attrs.evolve(subject, alone=alone)


def golden_subject(folder, cases, new, at_once, longest):
    """Golden prompts with transformers' tokens, and more prompts that begin like them."""
    cases = [case for case in cases if len(case["prompt"]) <= longest]
    prompts = [case["prompt"] for case in cases]
    begun = [ids[: len(ids) * part // 4 + 1] for part in (3, 2) for ids in prompts]
    asked = [
        Request(arrays={"ids": np.asarray(ids)}, max_new_tokens=new, ignore_stop_ids=True)
        for ids in [*prompts, *begun]
    ]
    subject = with_answers(Subject(folder=folder, asked=asked, at_once=at_once))
    assert [ids for ids, _ in subject.alone[: len(cases)]] == [c["greedy"][:new] for c in cases]
    return subject


def micro_subject(per_task, at_once, longest=1 << 20):
    """The first questions of each task whose prompts are no longer.

    Every second one goes on behind the end of its answer, so that pools run out.
    """
    if not MICRO.is_dir():
        pytest.skip("this package holds no trained checkpoint")
    front = Qwen35.open(MICRO, None).front()
    asked, count = [], Counter()
    for question in read_tasks(shipped_tasks(MICRO)).questions:
        goes_on = count[question.task] % 2 == 1
        request = front.chat_request(
            question.messages,
            max_new_tokens=ON if goes_on else question.max_tokens,
            ignore_stop_ids=goes_on,
            sampling=SamplingSettings(),
        )
        if count[question.task] < per_task and len(request.arrays["ids"]) <= longest:
            asked.append(request)
            count[question.task] += 1
    return with_answers(Subject(folder=MICRO, asked=asked, at_once=at_once))


@pytest.fixture(scope="module")
def golden_short(slow, slow_cases):
    return golden_subject(slow, slow_cases, new=10, at_once=8, longest=32)


@pytest.fixture(scope="module")
def golden(slow, slow_cases):
    return golden_subject(slow, slow_cases, new=16, at_once=32, longest=127)


@pytest.fixture(scope="module")
def micro_few():
    return micro_subject(2, at_once=8, longest=40)


@pytest.fixture(scope="module")
def micro_short():
    """For chunks of so few tokens that long prompts would take many minutes.

    And for whole prompts where pages run out: next to a long one no other would be let in.
    """
    return micro_subject(7, at_once=32, longest=48)


@pytest.fixture(scope="module")
def micro():
    return micro_subject(4, at_once=32)


def check(subject, schedule):
    """All at once, as often as the cache makes a difference; what was asked for took place."""
    with subject.opened(schedule) as engine:
        for life in ("cold", "warm") if schedule.cache else ("cold",):
            answers, cached = subject.answers(engine, subject.at_once)
            assert answers == subject.alone, life
            if life == "warm" and schedule.pressure == "none":  # else it may have been evicted
                assert cached > 0
        counts = engine.stats()
    taken = counts["offload"]["offloads"] > 0, counts["recomputed"] > 0
    assert taken == (schedule.pressure == "offload", schedule.pressure == "recompute")
    assert ("mixed" in counts["by_walk"]) == (schedule.mixed and schedule.chunk != 1)
    if schedule.mode == "resident":
        assert counts["row_check"]["rows"] > 0
        assert counts["row_check"]["mismatches"] == 0


@pytest.mark.shared
@pytest.mark.parametrize("schedule", SOME[1::2], ids=str)
def test_a_schedule_gives_golden_prompts_their_tokens(golden_short, schedule):
    check(golden_short, schedule)


@pytest.mark.parametrize("schedule", SOME[::2], ids=str)
def test_a_schedule_answers_held_out_questions_as_alone(micro_few, schedule):
    check(micro_few, schedule)


@pytest.mark.long
@pytest.mark.shared
@pytest.mark.parametrize("schedule", EVERY[::3], ids=str)
def test_thirty_two_golden_prompts_at_a_time_have_their_tokens(golden, schedule):
    check(golden, schedule)


@pytest.mark.long
@pytest.mark.parametrize("schedule", EVERY, ids=str)
def test_every_schedule_answers_held_out_questions_as_alone(micro, micro_short, schedule):
    crowded = schedule.chunk is None and schedule.pressure != "none"
    check(micro_short if crowded or schedule.chunk in (1, 16) else micro, schedule)
