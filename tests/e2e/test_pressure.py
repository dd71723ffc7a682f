"""Memory pressure: admission takes a first chunk alone, the youngest yield, all finish right."""

import random

import pytest

from mstar_core.engine.device import Lag
from mstar_core.engine.events import FinishEvent
from mstar_core.testing.cores import open_ledger, results
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.playing import poison

SETS = (
    "engine.admission=take",
    "engine.token_budget=32",
    "engine.min_chunk=4",
    "engine.max_context=128",
    "engine.capture.tokens=[16]",
    "nodes.ledger.resources.kv.page_tokens=8",
    "debug.row_check=true",
)
MODES = {
    "eager": ("engine.graphs=off",),
    "recorder": ("engine.graphs=recorder", "engine.resident=off"),
    "resident": ("engine.graphs=recorder",),
}
RIGHT = {}


@pytest.fixture
def opened(tmp_path):
    """Opens cores with NaN in every page; each must be idle and have everything back in the end."""
    cores = []

    def open_core(*sets, rows=4, pages=12, mode="eager", lag=None):
        more = (
            f"engine.max_rows={rows}",
            f"engine.capture.rows=[{rows}]",
            f"nodes.ledger.resources.kv.num_pages={pages}",
        )
        core, _ = open_ledger(tmp_path, (*SETS, *MODES[mode], *more, *sets), lag)
        poison(core)
        cores.append(core)
        return core

    yield open_core
    for core in cores:
        assert core.idle
        core.check_conserved()
        core.check_rows()
        assert core.fences.num_cooling == 0
        assert core.table.num_free == core.table.num_handles


def ask(salt, prompt=5, new=30, **more):
    """A request; what it should give is kept."""
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    RIGHT[f"r{salt}"] = continuation(ids, salt, new)
    return ledger_request(ids, salt, new, id=f"r{salt}", **more)


def many(count, seed=0, prompt=40, new=60):
    draw = random.Random(seed)
    return [ask(i, draw.randint(1, prompt), draw.randint(1, new)) for i in range(count)]


def play(core, requests, most=20000):
    """Turns to the end; nothing may be wrong in any."""
    for request in requests:
        core.submit(request)
    for _ in range(most):
        if not core.turn():
            break
    events = list(core.drain())
    core.events.extend(events)
    found = results(core)
    assert {n: r.ids for n, r in found.items()} == {r.id: RIGHT[r.id] for r in requests}
    return {e.request: e for e in events if isinstance(e, FinishEvent)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preempt", ["offload", "recompute"])
def test_a_pool_of_a_quarter_of_what_runs_serves_200_requests(opened, mode, preempt):
    """4 times oversubscribed: 16 rows of up to 100 tokens want 208 pages of 8, and there are 52."""
    core = opened(f"engine.preempt={preempt}", rows=16, pages=52, mode=mode, lag=Lag(5))
    finishes = play(core, many(200))
    stats = core.stats()
    yielded = sum(finish.preemptions for finish in finishes.values())
    assert yielded > 20
    moved = stats["offload"]
    assert moved["offloads"] == moved["reloads"]
    assert moved["offloads"] + stats["recomputed"] <= yielded
    assert (moved["offloads"] > 0, stats["recomputed"] > 0) == (
        (True, False) if preempt == "offload" else (False, True)
    )


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("preempt", ["auto", "offload", "recompute"])
def test_each_way_of_yielding_gives_the_same_tokens(opened, depth, preempt):
    core = opened(
        f"engine.in_flight={depth}",
        f"engine.preempt={preempt}",
        rows=8,
        pages=16,
        mode="resident",
        lag=Lag(depth),
    )
    finishes = play(core, many(40, seed=depth))
    assert sum(finish.preemptions for finish in finishes.values()) > 10
