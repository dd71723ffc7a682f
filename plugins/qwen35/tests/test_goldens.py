"""The engine on golden checkpoints: alone and together, eager and recorded, with a late device."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mstar_core.engine import Engine
from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.model.front import Request

pytestmark = pytest.mark.shared

ENGINE = (
    "model.dtype=fp32",
    "device=cpu",
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=512",
    "engine.capture.rows=[1, 8]",
    "engine.capture.require=true",
    "nodes.text.resources.kv.page_tokens=16",
)


def slow_cases(shared):
    folder = shared / "golden" / "qwen3_5-tiny-untied-8l-slow"
    return folder, json.loads((folder / "golden.json").read_text())["cases"]


def request(prompt, steps):
    ids = np.asarray(prompt, dtype=np.int64)
    return Request(arrays={"ids": ids}, max_new_tokens=steps, ignore_stop_ids=True)


def open_engine(folder, *sets, lag=None):
    device = CpuDevice(lag=lag) if lag else None
    return Engine.open("qwen35_tiny", (f"model.path={folder}", *ENGINE, *sets), device=device)


@pytest.mark.parametrize(("graphs", "in_flight"), [("off", 0), ("off", 2), ("recorder", 1)])
def test_sixteen_slow_prompts_alone_and_eight_at_a_time(shared, graphs, in_flight):
    folder, cases = slow_cases(shared)
    sets = (f"engine.graphs={graphs}", f"engine.in_flight={in_flight}")
    with open_engine(folder, *sets) as engine:
        together = engine.run([request(c["prompt"], 64) for c in cases])
        some = cases if in_flight else cases[::4]
        alone = [engine.run([request(c["prompt"], 64)])[0] for c in some]
    assert [r.ids for r in together] == [c["greedy"] for c in cases]
    assert [r.ids for r in alone] == [c["greedy"] for c in some]
    assert {r.finish_reason for r in (*together, *alone)} == {"length"}


def test_slow_prompts_on_a_device_that_completes_late(shared):
    folder, cases = slow_cases(shared)
    sets = ("engine.graphs=recorder", "engine.in_flight=3")
    with open_engine(folder, *sets, lag=Lag(seed=5)) as engine:
        results = engine.run([request(c["prompt"], 64) for c in cases])
    assert [r.ids for r in results] == [c["greedy"] for c in cases]


@pytest.mark.parametrize("name", ["tiny-tied", "tiny-untied-8l", "tiny-realheads"])
def test_the_text_goldens(shared, name):
    folder = shared / "golden" / f"qwen3_5-{name}"
    golden = json.loads((folder / "golden.json").read_text())
    with open_engine(folder, "engine.graphs=off") as engine:
        (result,) = engine.run([request(golden["prompt"], len(golden["greedy"]))])
    assert result.ids == golden["greedy"]


def test_a_request_stops_at_each_of_its_stop_ids_unless_it_ignores_them(shared):
    """QW-07"""
    folder, cases = slow_cases(shared)
    prompt, greedy = cases[4]["prompt"], cases[4]["greedy"]
    ids = np.asarray(prompt, dtype=np.int64)
    stop = frozenset({greedy[5], greedy[9]})
    first = min(greedy.index(one) for one in stop)
    with open_engine(folder, "engine.graphs=off") as engine:
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
