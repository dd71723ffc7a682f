"""Prompts that begin alike on the slow checkpoint: the same tokens as cold, state included."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import Lag
from mstar_core.model.front import Request
from mstar_core.ops.gated_delta.torch_backend import TorchGatedDelta

pytestmark = pytest.mark.shared

WARM = ("nodes.text.resources.state.snapshot_every=16", "nodes.text.resources.state.snapshots=64")
COLD = ("engine.prefix_cache=off",)
STEPS = 12


def request(prompt, steps):
    ids = np.asarray(prompt, dtype=np.int64)
    return Request(arrays={"ids": ids}, max_new_tokens=steps, ignore_stop_ids=True)


def words(count, seed):
    return np.random.default_rng(seed).integers(1, 200, count).tolist()


def answers(engine, *prompts, steps=STEPS, **settings):
    """One after the other: the tokens, and how many of the prompt were cached."""
    asked = [attrs.evolve(request(prompt, steps), **settings) for prompt in prompts]
    results = [engine.run([one])[0] for one in asked]
    return [r.ids for r in results], [r.cached_tokens for r in results]


@pytest.mark.parametrize("graphs", ["off", "recorder"])
@pytest.mark.parametrize("budget", [16, 23, 64])
def test_golden_prompts_give_their_tokens_cold_and_warm(
    slow, slow_cases, open_engine, graphs, budget
):
    """GDN-09, KV-01"""
    cases = sorted(slow_cases, key=lambda case: len(case["prompt"]))[-4:]
    sets = (f"engine.token_budget={budget}", "engine.min_chunk=1", "engine.capture.tokens=[16]")
    with open_engine(slow, f"engine.graphs={graphs}", *sets, *WARM, lag=Lag(seed=3)) as engine:
        for turn in range(2):
            found = engine.run([request(case["prompt"], 24) for case in cases])
            assert [r.ids for r in found] == [case["greedy"][:24] for case in cases]
            whole = [(len(case["prompt"]) - 1) // 16 * 16 for case in cases]
            assert [r.cached_tokens for r in found] == (whole if turn else [0] * len(cases))


@pytest.mark.parametrize("mixed", [pytest.param("off", marks=pytest.mark.long), "on"])
def test_five_turns_and_an_edited_branch_answer_as_cold(slow, open_engine, mixed):
    """GDN-26: each turn brings 30 tokens; answers that were generated are found too."""
    history, prompts, cached = [], [], []
    sets = ("engine.graphs=recorder", "engine.in_flight=2", f"engine.mixed={mixed}")
    with open_engine(slow, *sets, *WARM) as engine:
        for turn in range(5):
            history += words(30, turn)
            prompts.append(list(history))
            ((answer,), (count,)) = answers(engine, history)
            cached.append(count)
            history += answer
        branch = [*history[:-42], *words(30, 99)]
        prompts.append(branch)
        (edited,), (count,) = answers(engine, branch)
    assert cached == [0, 32, 80, 112, 160]
    assert count == 160
    with open_engine(slow, *sets, *COLD) as engine:
        cold, none = answers(engine, *prompts)
    assert none == [0] * 6
    assert [*(history[42 * t + 30 : 42 * (t + 1)] for t in range(5)), edited] == cold


def test_penalties_and_seeds_count_from_where_a_cold_prompt_would(slow, open_engine):
    """What the sampler knows of a prompt that was not computed: its ids, and its length."""
    prompt = words(50, 7)
    sampling = SamplingSettings(
        temperature=0.9, top_p=0.95, seed=5, repetition_penalty=1.3, presence_penalty=0.4
    )
    with open_engine(slow, "engine.graphs=off", *COLD) as engine:
        (right,), _ = answers(engine, prompt, sampling=sampling)
    with open_engine(slow, "engine.graphs=off", *WARM) as engine:
        answers(engine, prompt)
        (found,), cached = answers(engine, prompt, sampling=sampling)
    assert (found, cached) == (right, [48])


def test_another_position_offset_shares_nothing(slow, open_engine):
    with open_engine(slow, "engine.graphs=off", *WARM) as engine:
        prompt = words(40, 3)
        offset = {"position": {"offset": 4}}
        _, plain = answers(engine, prompt, prompt)
        _, moved = answers(engine, prompt, prompt, settings=offset)
    assert (plain, moved) == ([0, 32], [0, 32])


def test_a_backend_that_writes_no_snapshots_refuses_the_cache_at_warmup(
    slow, slow_cases, open_engine, monkeypatch
):
    """GDN-08, S3.15: the second answer equals the first, and no memory is claimed for snapshots."""
    bind = TorchGatedDelta.bind
    monkeypatch.setattr(
        TorchGatedDelta,
        "bind",
        lambda self, asked: attrs.evolve(bind(self, asked), snapshots=False),
    )
    prompt = slow_cases[-1]["prompt"]
    with open_engine(slow, "engine.graphs=off", *WARM) as engine:
        (refusal,) = engine.report.prefix_refusals
        found, cached = answers(engine, prompt, prompt)
        held = engine.stats()["held"]
    assert (refusal.code, refusal.owner) == ("no-snapshots", "gated_delta")
    assert (found, cached) == ([slow_cases[-1]["greedy"][:STEPS]] * 2, [0, 0])
    assert not [what for what in held if "snapshots" in what]
