"""Chunking, mixing, reuse, pressure and residence in every combination: transformers' tokens."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired, results
from mstar_core.testing.playing import poison

pytestmark = pytest.mark.shared

NEW = 16
NEAR = 5e-5
"""Of states that chunks were cut for elsewhere."""
BUDGETS = (1, 7, 16, 64, 65, 256)
COMBINATIONS = tuple(product(BUDGETS, *[(False, True)] * 4))


@pytest.fixture(scope="module")
def cases(slow_cases):
    return sorted(slow_cases, key=lambda case: len(case["prompt"]))[1:12:2]


def sets_of(budget, mixed, cache, pressed, resident):
    return (
        "model.dtype=fp32",
        "engine.max_rows=6",
        "engine.min_chunk=1",
        "engine.max_context=512",
        "engine.in_flight=2",
        "engine.graphs=recorder",
        "engine.capture.rows=[6]",
        "engine.capture.tokens=[]",
        f"engine.token_budget={budget}",
        f"engine.mixed={'on' if mixed else 'off'}",
        f"engine.prefix_cache={'auto' if cache else 'off'}",
        f"engine.resident={'auto' if resident else 'off'}",
        "engine.admission=take",
        "nodes.text.resources.kv.page_tokens=16",
        f"nodes.text.resources.kv.num_pages={20 if pressed else 'null'}",
        "nodes.text.resources.state.snapshot_every=16",
        "nodes.text.resources.state.snapshots=40",
        "debug.row_check=true",
    )


def play(core, wired, cases, life):
    """The tokens of every request, and its state as it was when it ended."""
    state = wired.nodes["text"].resources["state"]
    layers = [state.layer(i) for i in range(state.options.num_layers)]
    given = [
        Request(
            id=f"{life}{i}",
            arrays={"ids": np.asarray(case["prompt"])},
            max_new_tokens=NEW,
            ignore_stop_ids=True,
        )
        for i, case in enumerate(cases)
    ]
    for request in given:
        core.submit(request)
    slots, last = {}, {}
    while core.turn():
        here = {s.id: int(state.slot[s.handle]) for s in core._running}
        slots |= here
        for name in slots.keys() - here.keys() - last.keys():
            if name not in core._live:  # it ended in this turn, and nobody has its slot yet
                blocks = [x[slots[name]].flatten() for layer in layers for x in layer.values()]
                last[name] = torch.cat(blocks)
    core.check_conserved()
    found = results(core)
    return [found[r.id].ids for r in given], [last[r.id] for r in given]


def opened(folder, slow, combination):
    core, wired, _ = open_wired(
        "mstar_qwen35.model:Qwen35", folder, sets_of(*combination), checkpoint=slow
    )
    return core, wired


@pytest.fixture(scope="module")
def alone(tmp_path_factory, slow, cases):
    """The last state of each prompt that runs alone, whole, cold and planned on the host."""
    states = []
    for case in cases:
        core, wired = opened(tmp_path_factory.mktemp("alone"), slow, (256, *[False] * 4))
        _, (state,) = play(core, wired, [case], "alone")
        states.append(state)
    return states


def check(folder, slow, cases, alone, combination):
    core, wired = opened(folder, slow, combination)
    poison(core)
    want = [case["greedy"][:NEW] for case in cases]
    for life in ("cold", "warm"):
        tokens, states = play(core, wired, cases, life)
        assert tokens == want, life
        for got, other in zip(states, alone, strict=True):
            torch.testing.assert_close(got, other, atol=NEAR, rtol=NEAR)
    core.check_rows()


@pytest.mark.parametrize("combination", COMBINATIONS[37::19])
def test_a_combination_gives_the_tokens_and_state_of_each_request_alone(
    tmp_path, slow, cases, alone, combination
):
    check(tmp_path, slow, cases, alone, combination)


@pytest.mark.long
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_every_combination_gives_the_tokens_and_state_of_each_request_alone(
    tmp_path, slow, cases, alone, combination
):
    check(tmp_path, slow, cases, alone, combination)
