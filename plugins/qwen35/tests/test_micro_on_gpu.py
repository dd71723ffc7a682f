"""The trained checkpoint on a GPU in bf16: right, and like fp32 however its steps are made and cut.

bf16 may take another token only where fp32 cannot tell two apart: see
:mod:`mstar_core.bench.quality_account`. What was accounted for is printed.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import attrs
import mstar_qwen35
import pytest
import torch
from attrs import field, frozen

from mstar_core.bench.quality import Said, request_of
from mstar_core.bench.quality_account import account, likeliest, plain_sets
from mstar_core.bench.quality_reference import differences, with_margins
from mstar_core.bench.quality_report import measure
from mstar_core.bench.quality_tasks import Tasks, read_tasks, shipped_tasks
from mstar_core.config.sampling import MAX_LOGPROBS, SamplingSettings
from mstar_core.engine import Engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
MICRO = Path(mstar_qwen35.__file__).parent / "micro"
AT_ONCE = 32
TIMES = 4
"""A margin of fp32 below so many measured errors is a tie."""
BASE = (
    "device=cuda",
    "model.dtype=bf16",
    f"engine.max_rows={AT_ONCE}",
    "engine.min_chunk=1",
    "engine.token_budget=2304",
    "engine.max_context=2304",
    f"engine.capture.rows=[{AT_ONCE}]",
    "engine.capture.tokens=[64]",
    "engine.prefix_cache=off",
    "engine.admission=take",
    "nodes.text.resources.state.snapshot_every=512",
    "nodes.text.resources.state.snapshots=64",
    "debug.row_check=true",
)
BACKENDS = {
    "auto": {},
    "torch": dict.fromkeys(("paged_attention", "gated_delta", "sampling", "linear"), "torch"),
    "flashinfer": dict.fromkeys(("paged_attention", "sampling"), "flashinfer"),
    "flashinfer_fa3": {"paged_attention": "flashinfer_fa3", "sampling": "flashinfer"},
    "flashinfer_delta": dict.fromkeys(("paged_attention", "gated_delta"), "flashinfer"),
}
"""Per operation, the backend that is asked for by name."""
NEEDS = {"flashinfer": "flashinfer", "flashinfer_fa3": "flashinfer", "flashinfer_delta": "cutlass"}
"""The library that is no requirement of its plugin."""
WAYS = {
    "resident": (),
    "alone": (),
    "host-planned": ("engine.resident=off",),
    "eager": ("engine.graphs=off",),
    "chunks of 64": ("engine.token_budget=64",),
    "chunks of 64, mixed": ("engine.token_budget=64", "engine.mixed=on"),
    "chunks of 64, mixed, host-planned": (
        "engine.token_budget=64",
        "engine.mixed=on",
        "engine.resident=off",
    ),
    "cache": ("engine.prefix_cache=auto",),
}
SHORT = {
    "chunks of 16, mixed": (
        "engine.token_budget=16",
        "engine.capture.tokens=[16]",
        "engine.mixed=on",
    ),
    "chunks of 1": ("engine.token_budget=1", "engine.capture.tokens=[1]"),
}
"""Chunks of so few tokens that far questions would take a minute."""

ON = 40
"""Tokens of an answer that goes on behind its end, so that pages run out."""
NARROW = (
    "engine.max_context=192",
    "engine.token_budget=192",
    "nodes.text.resources.kv.page_tokens=16",
    "nodes.text.resources.kv.num_pages=48",
)


def opened(*sets):
    return Engine.open("qwen35_micro", (*BASE, *sets))


@frozen
class Plain:
    """The model in fp32, what it answers, and how likely it finds its tokens."""

    engine: Engine
    tasks: Tasks
    answers: dict[int, Said]
    likeliest: list = field(factory=list)


@pytest.fixture(scope="module")
def plain():
    tasks = read_tasks(shipped_tasks(MICRO)).first(8)
    with opened() as engine:
        sets = plain_sets(engine.report)
    with opened(*sets) as engine:
        said = measure(engine, tasks, AT_ONCE).answers
        yield Plain(engine, tasks, {one.number: one for one in said}, likeliest(engine, tasks))


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    library = NEEDS.get(request.param)
    if library is not None and find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    asked = BACKENDS[request.param].items()
    return tuple(f"nodes.text.backends.{operation}={name}" for operation, name in asked)


@pytest.fixture(scope="module")
def error(plain, backend):
    """By how much the backend is off from fp32."""
    with opened(*backend) as engine:
        found = account(TIMES, likeliest(engine, plain.tasks), plain.likeliest)
    print(f"\n{found}")
    return found


def check(plain, error, tasks, at_once, *sets):
    """Every answer is fp32's, or parts from it at a tie; at least as many are right."""
    with opened(*sets) as engine:
        for _ in ("cold", "warm") if "engine.prefix_cache=auto" in sets else ("cold",):
            outcome = measure(engine, tasks, at_once, plain.answers)
            outcome = outcome.judged(plain.engine, error.bound, error)
            print([(one.question.task, one.at, one.margin) for one in outcome.differences])
            assert outcome.apart == []
            required = {q.task: 0.6 if q.task == "story" else 0.95 for q in tasks.questions}
            assert outcome.below(required) == []
        stats = engine.stats()
    if "engine.graphs=off" not in sets:
        assert stats["replayed"] > 0
    if "engine.mixed=on" in sets:
        assert stats["by_walk"]["mixed"] > 0
    if "engine.prefix_cache=auto" in sets:
        assert stats["prefix"]["cached_tokens"] > 0
    if stats["row_check"] is not None:
        assert stats["row_check"]["mismatches"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_bf16_answers_as_fp32_does_but_for_ties(plain, backend, error, way):
    check(plain, error, plain.tasks, 1 if way == "alone" else AT_ONCE, *backend, *WAYS[way])


@pytest.mark.parametrize("way", SHORT)
def test_bf16_answers_short_questions_as_fp32_does_but_for_ties(plain, backend, error, way):
    check(plain, error, short(plain.tasks), AT_ONCE, *backend, *SHORT[way])


def short(tasks):
    """Without those whose answer stands far back."""
    kept = (q for q in tasks.questions if not q.task.startswith("recall"))
    return attrs.evolve(tasks, questions=tuple(kept))


def going_on(engine, tasks):
    """What it says to each short question until it has said :data:`ON` tokens."""
    sampling = SamplingSettings(logprobs=MAX_LOGPROBS)
    given = {"max_new_tokens": ON, "ignore_stop_ids": True, "sampling": sampling}
    return engine.run([attrs.evolve(request_of(engine, q), **given) for q in tasks.questions])


def told(tasks, results):
    return [
        Said(number=q.number, text="", ids=tuple(r.ids), finish=r.finish_reason)
        for q, r in zip(tasks.questions, results, strict=True)
    ]


@pytest.mark.parametrize("preempt", ["offload", "recompute"])
def test_bf16_goes_on_as_fp32_does_but_for_ties_where_pages_run_out(plain, backend, preempt):
    tasks = short(plain.tasks)
    reference = going_on(plain.engine, tasks)
    with opened(*backend) as engine:
        error = account(TIMES, going_on(engine, tasks), reference)
    with opened(*backend, *NARROW, f"engine.preempt={preempt}") as engine:
        found = told(tasks, going_on(engine, tasks))
        stats = engine.stats()
    apart = {said.number: said for said in told(tasks, reference)}
    judged = with_margins(plain.engine, differences(tasks.questions, found, apart))
    print(f"\n{error}, {[(one.question.task, one.at, one.margin) for one in judged]}")
    assert [one for one in judged if not one.is_tie(error.bound)] == []
    taken = stats["offload"]["offloads"] > 0, stats["recomputed"] > 0
    assert taken == (preempt == "offload", preempt == "recompute")
