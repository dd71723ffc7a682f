"""Mixed steps on a Qwen3.5 whose states decay slowly: transformers' tokens, and the state alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from mstar_core.engine import Engine
from mstar_core.engine.device import Lag
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired, results
from mstar_core.testing.playing import poison

pytestmark = pytest.mark.shared

SETS = (
    "engine.max_rows=8",
    "engine.min_chunk=1",
    "engine.max_context=512",
    "engine.capture.rows=[2, 8]",
    "engine.capture.require=true",
    "model.dtype=fp32",
    "debug.row_check=true",
    "nodes.text.resources.kv.page_tokens=16",
)
MODES = {
    "eager": ("engine.graphs=off",),
    "host-planned": ("engine.graphs=recorder", "engine.resident=off"),
    "resident": ("engine.graphs=recorder",),
}
BUDGETS = (1, 7, 16, 64, 65, 256)
ALWAYS = {(1, "eager"), (7, "host-planned"), (7, "resident"), *product((64,), MODES)}
WAYS = [
    way if way in ALWAYS else pytest.param(*way, marks=pytest.mark.long)
    for way in product(BUDGETS, MODES)
]
NEW = 12
EVERY = 3
NEAR = 5e-5
"""Of states that chunks were cut for elsewhere."""


@pytest.fixture(scope="module")
def cases(slow_cases):
    """Golden prompts of different lengths, the long ones among the short."""
    return sorted(slow_cases, key=lambda case: len(case["prompt"]))[1::4]


def opened(folder, slow, budget, *sets, lag=None):
    tokens = sorted({min(16, budget), budget})
    more = (f"engine.token_budget={budget}", f"engine.capture.tokens={tokens}")
    return open_wired(
        "mstar_qwen35.model:Qwen35", folder, (*SETS, *more, *sets), lag, checkpoint=slow
    )


def play(core, wired, prompts):
    """The tokens of prompts that arrive while others decode, and each request's last state."""
    state, slots, turn = wired.nodes["text"].resources["state"], {}, 0
    waiting = [
        Request(
            id=str(i),
            arrays={"ids": np.asarray(prompt)},
            max_new_tokens=NEW,
            ignore_stop_ids=True,
        )
        for i, prompt in enumerate(prompts)
    ]
    while core.turn() or waiting:
        if waiting and turn % EVERY == 0:
            core.submit(waiting.pop(0))
        turn += 1
        slots |= {s.id: int(state.slot[s.handle]) for s in core._running}
    core.check_conserved()
    core.check_rows()
    found = results(core)
    layers = [state.layer(i) for i in range(state.options.num_layers)]
    states = [
        torch.cat([x[slots[str(i)]].flatten() for layer in layers for x in layer.values()])
        for i in range(len(prompts))
    ]
    assert len(set(slots.values())) == len(prompts), "a slot was used again"
    return [found[str(i)].ids for i in range(len(prompts))], states


@pytest.fixture(scope="module")
def alone(tmp_path_factory, slow, cases):
    """The last state of each prompt that runs alone."""
    states = []
    for case in cases:
        core, wired, _ = opened(
            tmp_path_factory.mktemp("alone"), slow, 256, "engine.graphs=off", "engine.in_flight=0"
        )
        tokens, (state,) = play(core, wired, [case["prompt"]])
        assert tokens == [case["greedy"][:NEW]]
        states.append(state)
    return states


@pytest.mark.parametrize(("budget", "mode"), WAYS)
def test_prompts_that_land_among_decodes_change_no_token_and_no_state(
    tmp_path, slow, cases, alone, budget, mode
):
    """GDN-02, GDN-20: mixed and not, at every budget of a chunk, over memory full of rubbish."""
    for mixed in ("on", "off"):
        sets = (f"engine.mixed={mixed}", "engine.in_flight=2", *MODES[mode])
        core, wired, _ = opened(tmp_path, slow, budget, *sets, lag=Lag(seed=budget))
        poison(core, 1e3 if mode == "host-planned" else float("nan"))
        tokens, states = play(core, wired, [case["prompt"] for case in cases])
        assert tokens == [case["greedy"][:NEW] for case in cases]
        for got, want in zip(states, alone, strict=True):
            torch.testing.assert_close(got, want, atol=NEAR, rtol=NEAR)
        counts = core.stats()
        assert ("mixed" in counts["by_walk"]) == (mixed == "on" and budget > 1)
        assert (mode == "eager") == bool(counts["eager_by_walk"])


def test_all_golden_prompts_at_once_with_mixed_steps(slow, slow_cases):
    sets = (
        f"model.path={slow}",
        "device=cpu",
        "engine.mixed=on",
        "engine.graphs=recorder",
        "engine.token_budget=64",
        "engine.capture.tokens=[16, 64]",
        *(one for one in SETS if "graphs" not in one),
    )
    with Engine.open("qwen35_tiny", sets) as engine:
        found = engine.run(
            [
                Request(
                    arrays={"ids": np.asarray(c["prompt"])}, max_new_tokens=64, ignore_stop_ids=True
                )
                for c in slow_cases
            ]
        )
        counts = engine.stats()
    assert [r.ids for r in found] == [c["greedy"] for c in slow_cases]
    assert counts["by_walk"]["mixed"] > 5
