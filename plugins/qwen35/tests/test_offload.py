"""Offload in the middle, and the row check, over the shipped checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import Lag
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired, results

SETS = (
    "engine.max_rows=4",
    "engine.token_budget=16",
    "engine.min_chunk=4",
    "engine.max_context=128",
    "engine.capture.rows=[2, 4]",
    "engine.capture.tokens=[16]",
    "model.dtype=fp32",
    "debug.row_check=true",
    "nodes.text.resources.kv.page_tokens=16",
)
MODES = {
    "eager": ("engine.graphs=off",),
    "recorder": ("engine.graphs=recorder", "engine.resident=off"),
    "resident": ("engine.graphs=recorder",),
}
PROMPTS = [
    [(salt * 37 + i * 11) % 251 for i in range(size)] for salt, size in enumerate((9, 40, 5))
]
NEW = 14
TRIPS = {3: ("offload", "1"), 9: ("reload", "1"), 11: ("offload", "0"), 14: ("reload", "0")}
"""The second prompt leaves between two of its chunks, the first while it decodes."""
KINDS = (
    SamplingSettings(),
    SamplingSettings(temperature=0.9, top_k=30, seed=5),
    SamplingSettings(repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.5),
)


def play(folder, tiny, mode, depth, sampling, trips=None):
    """The tokens of every prompt, and what was counted."""
    sets = (*SETS, *MODES[mode], f"engine.in_flight={depth}")
    ref = "mstar_qwen35.model:Qwen35"
    core, _, _ = open_wired(ref, folder, sets, Lag(depth), checkpoint=tiny)
    for i, prompt in enumerate(PROMPTS):
        arrays = {"ids": np.asarray(prompt)}
        core.submit(Request(id=str(i), arrays=arrays, max_new_tokens=NEW, sampling=sampling[i]))
    turn, left = 0, dict(trips or {})
    while left or not core.idle:
        if turn in left:
            verb, name = left.pop(turn)
            getattr(core, verb)(name)
        core.turn()
        turn += 1
    core.check_conserved()
    core.check_rows()
    found = results(core)
    return [found[str(i)].ids for i in range(len(PROMPTS))], core.stats()


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("mode", MODES)
def test_offloads_in_the_middle_change_no_greedy_token(tmp_path, tiny, node, mode, depth):
    greedy = [SamplingSettings()] * 3
    tokens, stats = play(tmp_path, tiny, mode, depth, greedy, TRIPS)
    assert tokens == node(tiny).greedy(PROMPTS[:1], NEW) + [
        node(tiny).greedy([prompt], NEW)[0] for prompt in PROMPTS[1:]
    ]
    assert stats["offload"]["offloads"] == stats["offload"]["reloads"] == 2
    if mode == "resident":
        assert stats["row_check"]["rows"] > 0
        assert stats["row_check"]["mismatches"] == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_seeds_penalties_and_counts_survive_an_offload(tmp_path, tiny, order):
    sampling = [KINDS[i] for i in order]
    want, _ = play(tmp_path, tiny, "eager", 0, sampling)
    tokens, stats = play(tmp_path, tiny, "resident", 2, sampling, TRIPS)
    assert tokens == want
    assert stats["offload"]["reloads"] == 2
    assert stats["row_check"]["mismatches"] == 0
