"""The engine on golden checkpoints: alone and together, eager and recorded, with a late device."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mstar_core.engine.device import Lag
from mstar_core.model.front import Request

pytestmark = pytest.mark.shared


def request(prompt, steps):
    ids = np.asarray(prompt, dtype=np.int64)
    return Request(arrays={"ids": ids}, max_new_tokens=steps, ignore_stop_ids=True)


@pytest.mark.parametrize(
    ("graphs", "in_flight", "every"),
    [
        pytest.param("off", 0, 4, marks=pytest.mark.long),
        ("off", 2, 1),
        ("recorder", 1, 3),
        pytest.param("recorder", 1, 1, marks=pytest.mark.long),
    ],
)
def test_sixteen_slow_prompts_alone_and_eight_at_a_time(
    slow, slow_cases, open_engine, graphs, in_flight, every
):
    """``every``: of so many requests one is asked alone, too."""
    sets = (f"engine.graphs={graphs}", f"engine.in_flight={in_flight}")
    with open_engine(slow, *sets) as engine:
        together = engine.run([request(c["prompt"], 64) for c in slow_cases])
        some = slow_cases[::every]
        alone = [engine.run([request(c["prompt"], 64)])[0] for c in some]
    assert [r.ids for r in together] == [c["greedy"] for c in slow_cases]
    assert [r.ids for r in alone] == [c["greedy"] for c in some]
    assert {r.finish_reason for r in (*together, *alone)} == {"length"}


def test_slow_prompts_on_a_device_that_completes_late(slow, slow_cases, open_engine):
    sets = ("engine.graphs=recorder", "engine.in_flight=3")
    with open_engine(slow, *sets, lag=Lag(seed=5)) as engine:
        results = engine.run([request(c["prompt"], 64) for c in slow_cases])
    assert [r.ids for r in results] == [c["greedy"] for c in slow_cases]


@pytest.mark.parametrize("name", ["tiny-tied", "tiny-untied-8l", "tiny-realheads"])
def test_the_text_goldens(open_engine, shared, name):
    folder = shared / "golden" / f"qwen3_5-{name}"
    golden = json.loads((folder / "golden.json").read_text())
    with open_engine(folder, "engine.graphs=off") as engine:
        (result,) = engine.run([request(golden["prompt"], len(golden["greedy"]))])
    assert result.ids == golden["greedy"]


def test_a_request_stops_at_each_of_its_stop_ids_unless_it_ignores_them(
    slow, slow_cases, open_engine
):
    """QW-07"""
    prompt, greedy = slow_cases[4]["prompt"], slow_cases[4]["greedy"]
    ids = np.asarray(prompt, dtype=np.int64)
    stop = frozenset({greedy[5], greedy[9]})
    first = min(greedy.index(one) for one in stop)
    with open_engine(slow, "engine.graphs=off") as engine:
        stopped, ignoring = engine.run(
            [
                Request(arrays={"ids": ids}, max_new_tokens=20, stop_ids=stop),
                Request(
                    arrays={"ids": ids}, max_new_tokens=20, stop_ids=stop, ignore_stop_ids=True
                ),
            ]
        )
    assert (stopped.ids, stopped.finish_reason) == (greedy[:first], "stop")
    assert (ignoring.ids, ignoring.finish_reason) == (greedy[:20], "length")
