"""Every combination of chunking, mixing, reuse, pressure and residence gives the same tokens."""

from itertools import product

import pytest

from mstar_core.testing.cores import open_ledger, run_all
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.playing import poison

BUDGETS = (1, 7, 16, 64, 65, 128)
"""Tokens of a step; the last takes every prompt whole."""
KV = "nodes.ledger.resources.kv"
STATE = "nodes.ledger.resources.state"
COMBINATIONS = tuple(product(BUDGETS, *[(False, True)] * 4))


def sets_of(budget, mixed, cache, pressed, resident):
    tokens = sorted({min(16, budget), budget})
    return (
        "engine.max_rows=6",
        "engine.min_chunk=1",
        "engine.max_context=128",
        "engine.in_flight=2",
        "engine.graphs=recorder",
        "engine.capture.rows=[2,6]",
        "engine.capture.require=true",
        f"engine.capture.tokens={tokens}",
        f"engine.token_budget={budget}",
        f"engine.mixed={'on' if mixed else 'off'}",
        f"engine.prefix_cache={'auto' if cache else 'off'}",
        f"engine.resident={'auto' if resident else 'off'}",
        "engine.admission=take",
        f"{KV}.page_tokens=8",
        f"{KV}.num_pages={24 if pressed else 'null'}",
        f"{STATE}.snapshot_every=16",
        f"{STATE}.snapshots=24",
        "debug.row_check=true",
    )


def prompts():
    shared = [(5 * j + 3) % 97 for j in range(40)]
    return [shared[: 20 + i] + [(11 * i + j) % 97 for j in range(7 * i + 1)] for i in range(6)]


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_combination_gives_the_tokens_of_each_request_alone(tmp_path, combination):
    core, _ = open_ledger(tmp_path, sets_of(*combination))
    poison(core)
    want = [continuation(prompt, 9, 18) for prompt in prompts()]
    for life in ("cold", "warm"):
        given = [ledger_request(p, 9, 18, id=f"{life}{i}") for i, p in enumerate(prompts())]
        found = run_all(core, given)
        assert [found[request.id].ids for request in given] == want, life
    core.check_rows()
    _, _, cache, pressed, _ = combination
    if cache and not pressed:
        assert core.stats()["prefix"]["hits"] > 0
