"""One request's fault in a batch of sounds: the others' tokens are those of a clean run.

Frames travel over an edge and rules have states, so the others are run again from their sound.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import Lag
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired, run_all

GOLDEN = Path(__file__).parents[4] / "shared" / "models" / "golden" / "whisper-tiny-multilingual"
SETS = (
    "model.dtype=fp32",
    "engine.graphs=off",
    "engine.max_rows=8",
    "nodes.decoder.resources.kv.page_tokens=8",
)
POISONED = 99
"""The seed of the request whose step fails."""


@pytest.fixture(scope="module")
def requests():
    """Eight of one sound, with and without timestamps, cut to different lengths."""
    if not GOLDEN.is_dir():
        pytest.skip("the shared reference folder is not beside the checkout")
    goldens = json.loads((GOLDEN / "golden.json").read_text())
    mel = torch.load(GOLDEN / "mel.pt", weights_only=True)["mel"].numpy()
    found = []
    for n in range(8):
        timestamps = n % 2 == 1
        start = 3 + (not timestamps)
        found.append(
            Request(
                arrays={
                    "mel": np.zeros_like(mel) if n == 4 else mel,
                    "ids": np.asarray(goldens[f"one_window_ts_{timestamps}"][:start]),
                },
                max_new_tokens=5 + n,
                sampling=SamplingSettings(seed=POISONED if n == 4 else n),
                settings={"sampler_rules": {"timestamps": timestamps}},
            )
        )
    return found


def in_the_encoder(inputs, plans):
    return bool((inputs["mel"].abs().amax((-1, -2)) == 0).any())


def in_the_decoder(inputs, plans):
    plan = plans.get("sampler")
    return plan is not None and bool(((plan.seed_B == POISONED) & (plan.generated_B >= 3)).any())


@pytest.mark.shared
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(
    ("node", "is_poisoned", "kept"),
    [("encoder", in_the_encoder, 0), ("decoder", in_the_decoder, 3)],
    ids=["encoder", "decoder"],
)
def test_seven_of_eight_hear_what_they_hear_without_the_eighth(
    tmp_path, requests, depth, node, is_poisoned, kept
):
    sets = (*SETS, f"engine.in_flight={depth}")
    core, wired, _ = open_wired(
        "mstar_whisper.model:Whisper", tmp_path, sets, Lag(3), checkpoint=GOLDEN
    )
    others = [request for n, request in enumerate(requests) if n != 4]
    clean = run_all(core, others)
    submodule = wired.nodes[node].submodule
    original = submodule.forward

    def forward(walk, inputs, plans):
        if is_poisoned(inputs, plans):
            raise ZeroDivisionError("poisoned")
        return original(walk, inputs, plans)

    submodule.forward = forward
    found = run_all(core, requests)
    bad = found[requests[4].id]
    assert (bad.finish_reason, len(bad.ids)) == ("error", kept)
    assert {r.id: found[r.id].ids for r in others} == {r.id: clean[r.id].ids for r in others}
    assert node == "encoder" or core.stats()["caught"] > 0
