"""Chunking, mixing, reuse, pressure and residence in every combination: transformers' tokens."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired, run_all
from mstar_core.testing.playing import poison

pytestmark = pytest.mark.shared

NEW = 16
BUDGETS = (1, 7, 16, 64, 65, 256)
COMBINATIONS = tuple(product(BUDGETS, *[(False, True)] * 4))


@pytest.fixture(scope="module")
def slow(shared):
    return shared / "golden" / "qwen3_5-tiny-untied-8l-slow"


@pytest.fixture(scope="module")
def cases(slow):
    cases = json.loads((slow / "golden.json").read_text())["cases"]
    return sorted(cases, key=lambda case: len(case["prompt"]))[1:12:2]


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


def check(folder, slow, cases, combination):
    core, *_ = open_wired(
        "mstar_qwen35.model:Qwen35", folder, sets_of(*combination), checkpoint=slow
    )
    poison(core)
    want = [case["greedy"][:NEW] for case in cases]
    for life in ("cold", "warm"):
        given = [
            Request(
                id=f"{life}{i}",
                arrays={"ids": np.asarray(case["prompt"])},
                max_new_tokens=NEW,
                ignore_stop_ids=True,
            )
            for i, case in enumerate(cases)
        ]
        found = run_all(core, given)
        assert [found[request.id].ids for request in given] == want, life
    core.check_rows()


@pytest.mark.parametrize("combination", COMBINATIONS[37::19])
def test_a_combination_gives_the_tokens_of_each_request_alone(tmp_path, slow, cases, combination):
    check(tmp_path, slow, cases, combination)


@pytest.mark.long
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_every_combination_gives_the_tokens_of_each_request_alone(
    tmp_path, slow, cases, combination
):
    check(tmp_path, slow, cases, combination)
