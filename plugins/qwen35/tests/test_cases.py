"""Faults that users of other engines reported about hybrid models, tried through the engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mstar_core.engine.events import TokenEvent
from mstar_core.engine.opening import open_core
from mstar_core.model.front import Request

SETS = ("device=cpu", "model.dtype=fp32", "engine.max_context=256", "engine.min_chunk=1")
TOLERANCE = 5e-4
"""Of log-probabilities in fp32: chunk and step forms differ by rounding."""


def prompt(length, seed=0):
    draw = np.random.default_rng(seed)
    return Request(
        arrays={"ids": draw.integers(3, 900, length)}, max_new_tokens=6, ignore_stop_ids=True
    )


def opened(*sets):
    return open_core("qwen35_tiny", (*SETS, *sets), offline=True)[:2]


def spoil(wired, fill):
    for key in ("kv", "state"):
        for buffer in wired.buffers.of(f"text.{key}").values():
            buffer.fill_(fill)


def answered(core, requests):
    """Per request its ids and log-probabilities."""
    for request in requests:
        core.submit(request)
    while core.turn():
        pass
    found = {request.id: ([], []) for request in requests}
    for event in core.drain():
        if isinstance(event, TokenEvent):
            found[event.request][0].append(event.token)
            found[event.request][1].append(event.logprob)
    core.check_conserved()
    return list(found.values())


def after_prompt(budget, length):
    """The state after a prompt cut to ``budget``, over memory that held NaN, and the answer."""
    core, wired = opened("engine.max_rows=1", f"engine.token_budget={budget}")
    spoil(wired, float("nan"))
    request = prompt(length)
    core.submit(request)
    state = wired.nodes["text"].resources["state"]
    tokens = []
    while core.turn():
        tokens += [e for e in core.drain() if isinstance(e, TokenEvent)]
        if len(tokens) == 1:
            break
    blocks = {name: block[:, 1].clone() for name, block in state.pool.blocks.items()}
    while core.turn():
        tokens += [e for e in core.drain() if isinstance(e, TokenEvent)]
    return blocks, [t.token for t in tokens], [t.logprob for t in tokens]


@pytest.mark.parametrize("length", [63, 64, 65, 199])
def test_a_prompt_in_chunks_leaves_the_state_of_the_whole_prompt(length):
    """GDN-06: whatever the chunk budget is, and whatever the memory held before."""
    blocks, ids, logprobs = after_prompt(256, length)
    for budget in (7, 16, 64, 65):
        other, same_ids, others = after_prompt(budget, length)
        assert same_ids == ids
        assert others == pytest.approx(logprobs, abs=TOLERANCE)
        for name, block in blocks.items():
            assert torch.isfinite(other[name]).all()
            torch.testing.assert_close(other[name], block, atol=TOLERANCE, rtol=1e-3)


@pytest.mark.parametrize("graphs", ["off", "recorder"])
def test_an_answer_does_not_depend_on_how_many_ask(graphs):
    """GDN-23, SM-01: one prompt at every batch size from 1 to 20."""
    sets = ("engine.max_rows=20", "engine.token_budget=256", f"engine.graphs={graphs}")
    core, _ = opened(*sets, "engine.capture.rows=[1, 6, 20]", "engine.capture.tokens=[64, 256]")
    ((ids, logprobs),) = answered(core, [prompt(11)])
    for count in range(2, 21):
        for same_ids, others in answered(core, [prompt(11) for _ in range(count)]):
            assert same_ids == ids, count
            assert others == pytest.approx(logprobs, abs=TOLERANCE), count


def test_neighbours_change_no_token_over_sixty_four_steps():
    """SM-01: alone, and in a crowd of other prompts."""
    core, _ = opened("engine.max_rows=16", "engine.token_budget=256", "engine.graphs=off")
    mine = Request(
        arrays=prompt(9, seed=1).arrays, max_new_tokens=64, ignore_stop_ids=True, id="mine"
    )
    ((ids, _),) = answered(core, [mine])
    for count in (1, 4, 15):
        crowd = [prompt(3 + 2 * i, seed=10 + i) for i in range(count)]
        assert answered(core, [mine, *crowd])[0][0] == ids


@pytest.mark.parametrize("fill", [1e3, float("nan")], ids=str)
def test_who_used_a_slot_before_does_not_matter(fill):
    """GDN-13: one slot; a long prompt before a short one, and memory that was spoilt between."""
    core, wired = opened("engine.max_rows=1", "engine.token_budget=256")
    (fresh,) = answered(core, [prompt(5, seed=2)])
    answered(core, [prompt(150, seed=3)])
    assert answered(core, [prompt(5, seed=2)]) == [fresh]
    spoil(wired, fill)
    assert answered(core, [prompt(5, seed=2)]) == [fresh]


def test_weights_that_give_no_numbers_give_no_text():
    """QW-05: NaN inside one layer is an error of each request, and never a text."""
    core, wired = opened("engine.max_rows=2", "engine.token_budget=64")
    layer = wired.nodes["text"].submodule.layers[1]
    next(layer.parameters())[0] = float("nan")
    for request in (prompt(5), prompt(9)):
        core.submit(request)
    while core.turn():
        pass
    finishes = [event for event in core.drain() if not isinstance(event, TokenEvent)]
    assert [f.reason for f in finishes] == ["error", "error"]
    assert all("not finite" in f.error["got"] for f in finishes)
    core.check_conserved()
