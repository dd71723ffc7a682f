"""The slow checkpoint in a pool too small for its requests: the goldens' tokens all the same."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import Lag
from mstar_core.engine.events import FinishEvent
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired, results

SETS = (
    "model.dtype=fp32",
    "engine.admission=take",
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=512",
    "engine.capture.rows=[8]",
    "engine.capture.tokens=[64]",
    "nodes.text.resources.kv.page_tokens=16",
    "debug.row_check=true",
)
MODES = {
    "eager": ("engine.graphs=off",),
    "host-planned": ("engine.graphs=recorder", "engine.resident=off"),
    "resident": ("engine.graphs=recorder",),
}


def play(tmp_path, checkpoint, requests, *sets):
    """Tokens by request, how many yielded, and the core's counts."""
    ref = "mstar_qwen35.model:Qwen35"
    core, _, _ = open_wired(ref, tmp_path, (*SETS, *sets), Lag(3), checkpoint=checkpoint)
    for request in requests:
        core.submit(request)
    for _ in range(20000):
        if not core.turn():
            break
    core.check_conserved()
    core.check_rows()
    events = list(core.drain())
    core.events.extend(events)
    yielded = sum(e.preemptions for e in events if isinstance(e, FinishEvent))
    return {n: r.ids for n, r in results(core).items()}, yielded, core.stats()


@pytest.mark.shared
@pytest.mark.parametrize("preempt", ["offload", "recompute"])
@pytest.mark.parametrize("mode", MODES)
def test_the_slow_goldens_under_pressure(tmp_path, slow, slow_cases, mode, preempt):
    cases = slow_cases[:5]
    pages = max(-(-(len(c["prompt"]) + 64) // 16) for c in cases) + 2
    requests = [
        Request(
            arrays={"ids": np.asarray(c["prompt"], np.int64)},
            max_new_tokens=64,
            ignore_stop_ids=True,
            id=str(i),
        )
        for i, c in enumerate(cases)
    ]
    sets = (f"nodes.text.resources.kv.num_pages={pages}", f"engine.preempt={preempt}")
    tokens, yielded, stats = play(tmp_path, slow, requests, *MODES[mode], *sets)
    assert tokens == {str(i): c["greedy"] for i, c in enumerate(cases)}
    assert yielded > 0
    assert (stats["offload"]["offloads"] > 0, stats["recomputed"] > 0) == (
        preempt == "offload",
        preempt == "recompute",
    )
    if mode == "resident":
        assert stats["row_check"]["rows"] > 0
        assert stats["row_check"]["mismatches"] == 0


SAMPLED = SamplingSettings(temperature=0.9, top_k=30)
SEEDED = SamplingSettings(temperature=0.9, top_k=30, seed=5)
PENALISED = SamplingSettings(repetition_penalty=1.4, presence_penalty=0.5, logprobs=3)


def asked(sampling):
    return [
        Request(
            arrays={"ids": np.asarray([(i * 37 + j * 11) % 251 for j in range(9 + 5 * i)])},
            max_new_tokens=40,
            sampling=sampling[i % len(sampling)],
            id=str(i),
        )
        for i in range(6)
    ]


@pytest.mark.parametrize("preempt", ["offload", "recompute"])
def test_a_seeded_answer_goes_on_with_its_noise_and_penalties_keep_their_counts(
    tmp_path, tiny, preempt
):
    requests = asked((SEEDED, PENALISED, SamplingSettings()))
    want, none, _ = play(tmp_path, tiny, requests, *MODES["eager"])
    sets = ("nodes.text.resources.kv.num_pages=9", f"engine.preempt={preempt}")
    tokens, yielded, stats = play(tmp_path, tiny, requests, *MODES["resident"], *sets)
    assert none == 0 < yielded
    assert tokens == want
    if preempt == "recompute":
        assert stats["recomputed"] > 0


def test_a_request_without_a_seed_keeps_the_one_it_was_given_at_the_door(tmp_path, tiny):
    sets = ("nodes.text.resources.kv.num_pages=9", "engine.preempt=recompute")
    tokens, yielded, _ = play(tmp_path, tiny, asked((SAMPLED,)), *MODES["eager"], *sets)
    assert yielded > 0
    assert {len(ids) for ids in tokens.values()} == {40}


def test_a_model_says_which_prompt_brings_a_request_back(tmp_path, tiny):
    core, wired, _ = open_wired("mstar_qwen35.model:Qwen35", tmp_path, SETS, checkpoint=tiny)
    again = wired.model.run_again({"ids": np.asarray([3, 4])}, [5, 6])
    assert again["ids"].tolist() == [3, 4, 5, 6]
    assert core.pressure.parameters > 0
