"""Two pools under the row check: windows come, are offloaded in the middle, and go.

::

    python plugins/whisper/tests/test_row_check.py GOLDEN_FOLDER --rows 30000
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from mstar_core.engine.device import Lag
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired
from mstar_core.testing.loads import Load
from mstar_core.testing.row_check import Player

NAME = "whisper-tiny-multilingual"
SETS = (
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.in_flight=2",
    "engine.graphs=recorder",
    "engine.capture.rows=[4, 8]",
    "engine.capture.tokens=[16]",
    "model.dtype=fp32",
    "debug.row_check=true",
    "nodes.decoder.resources.kv.page_tokens=8",
    "nodes.decoder.resources.cross_kv.page_tokens=16",
)
LOAD = Load(name="two pools", live=12, offload=0.1, abort=0.05)


def player(golden: Path, scratch: Path, *sets: str) -> Player:
    """Golden requests cut to random lengths, over the tiny multilingual checkpoint."""
    folder = golden / NAME
    core, _, _ = open_wired(
        "mstar_whisper.model:Whisper", scratch, (*SETS, *sets), Lag(3), checkpoint=folder
    )
    goldens = json.loads((folder / "golden.json").read_text())
    mel = torch.load(folder / "mel.pt", weights_only=True)["mel"].numpy()

    def ask(rng, number):
        timestamps = rng.random() < 0.5
        want = goldens[f"one_window_ts_{timestamps}"]
        start = 3 + (not timestamps)
        new = rng.randint(1, len(want) - start)
        request = Request(
            id=f"w{number}",
            arrays={"mel": mel, "ids": np.asarray(want[:start])},
            max_new_tokens=new,
            stop_ids=frozenset({300}),
            settings={"sampler_rules": {"timestamps": timestamps}},
        )
        return request, want[start : start + new]

    return Player(load=LOAD, core=core, ask=ask)


@pytest.mark.shared
@pytest.mark.parametrize("in_flight", [0, 3])
def test_no_cell_of_either_pool_differs_and_every_token_is_golden(golden, tmp_path, in_flight):
    report = player(golden, tmp_path, f"engine.in_flight={in_flight}").play(150)
    assert report.rows >= 150
    assert report.mismatches == 0
    assert report.offloads > 0


@pytest.mark.shared
def test_an_offload_copies_the_pages_of_both_pools(golden, tmp_path):
    core = player(golden, tmp_path, "engine.in_flight=0").core
    decoder = core.nodes["decoder"].resources
    mel = torch.load(golden / NAME / "mel.pt", weights_only=True)["mel"].numpy()
    ids = json.loads((golden / NAME / "golden.json").read_text())["one_window_ts_False"][:4]
    core.submit(Request(id="w", arrays={"mel": mel, "ids": np.asarray(ids)}, max_new_tokens=9))
    while core.num_generated("w") < 3:
        core.turn()
    pages = [int(decoder[key].table.num_held.sum()) for key in ("kv", "cross_kv")]
    assert min(pages) > 0
    sizes = [
        pool.k_LPpGD[:, 0].numel() * 2 * pool.k_LPpGD.element_size()
        for pool in (decoder[key].pool for key in ("kv", "cross_kv"))
    ]
    core.offload("w")
    while core.turn():
        pass
    copied = core.stats()["offload"]["num_bytes"]
    assert copied > sum(n * size for n, size in zip(pages, sizes, strict=True))
    assert [int(decoder[key].table.num_held.sum()) for key in ("kv", "cross_kv")] == [0, 0]
    core.abort("w")
    core.check_conserved()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("golden", type=Path)
    parser.add_argument("--rows", type=int, default=30000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sys.stdout.write(f"{player(given.golden.resolve(), Path(scratch)).play(given.rows)}\n")
