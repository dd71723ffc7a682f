"""One request's fault in the forward of a batch: the others' samples are those of a clean run."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import Lag
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired, run_all

SETS = (
    "model.dtype=fp32",
    "engine.graphs=off",
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=256",
    "nodes.text.resources.kv.page_tokens=16",
)
POISONED = 99
"""The seed of the request whose step fails."""


def request(n, seed):
    """Half of them have penalties, which a second prompt cannot bring back."""
    draw = np.random.default_rng(n)
    sampling = SamplingSettings(
        temperature=0.9,
        seed=seed,
        repetition_penalty=1.3 if n % 2 else 1.0,
        frequency_penalty=0.4 if n % 2 else 0.0,
    )
    ids = draw.integers(0, 200, 4 + 5 * n)
    return Request(arrays={"ids": ids}, max_new_tokens=8 + n, sampling=sampling, id=f"r{n}-{seed}")


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("at", [1, 5])
def test_seven_of_eight_sample_what_they_sample_without_the_eighth(tmp_path, tiny, depth, at):
    sets = (*SETS, f"engine.in_flight={depth}")
    core, wired, _ = open_wired(
        "mstar_qwen35.model:Qwen35", tmp_path, sets, Lag(3), checkpoint=tiny
    )
    others = [request(n, n) for n in range(1, 8)]
    clean = run_all(core, others)
    submodule = wired.nodes["text"].submodule
    original = submodule.forward

    def forward(walk, inputs, plans):
        plan = plans["sampler"]
        bad = (plan.seed_B == POISONED) & (plan.generated_B >= at)
        if bool(bad.any()):
            raise ZeroDivisionError("poisoned")
        return original(walk, inputs, plans)

    submodule.forward = forward
    bad = request(4, POISONED)
    found = run_all(core, [*others[:3], bad, *others[3:]])
    assert (found[bad.id].finish_reason, len(found[bad.id].ids)) == ("error", at)
    assert {r.id: found[r.id].ids for r in others} == {r.id: clean[r.id].ids for r in others}
    assert core.stats()["caught"] > 0
