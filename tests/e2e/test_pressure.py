"""Memory pressure: admission takes a first chunk alone, the youngest yield, all finish right."""

import random

import pytest

from mstar_core.engine.device import Lag
from mstar_core.engine.events import FinishEvent
from mstar_core.errors import RequestError
from mstar_core.sched import Deadlines
from mstar_core.sched.admission import AGE_TURNS
from mstar_core.testing.cores import check_over, open_ledger, results
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
        check_over(core)


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


def turn_to_end(core, most=5000):
    for _ in range(most):
        if not core.turn():
            return
    raise AssertionError("not over")


def test_an_offloaded_request_that_fits_comes_back_before_an_older_one_that_does_not(opened):
    """KV-05 (i): 20 pages, A needs 14 and B 12, of which 8 and 7 are copied; B runs, then A."""
    core = opened("engine.preempt=offload", pages=20)
    a, b, c = ask(1, 60, 48), ask(2, 50, 42), ask(3, 89, 20)
    core.submit(a)
    core.submit(b)
    back, order = [], []
    for turn in range(4000):
        if turn == 3:
            core.offload("r1")
            core.offload("r2")
        if turn == 8:
            core.submit(c)
        if turn == 14:  # 12 pages are held: A, which is older, does not fit, and B does
            core.reload("r1")
            core.reload("r2")
        if not core.turn() and turn > 14:
            break
        if turn >= 14:
            back += [s.id for s in core._running if s.id not in (*back, "r3")]
        order += [e.request for e in core.drain() if isinstance(e, FinishEvent)]
    assert back == ["r2", "r1"]
    assert sorted(order) == ["r1", "r2", "r3"]
    assert core.stats()["offload"]["offloads"] == core.stats()["offload"]["reloads"]


@pytest.mark.parametrize("preempt", ["offload", "recompute"])
def test_two_that_cannot_both_be_held_give_way_and_both_finish(opened, preempt):
    """KV-05 (ii): together they want more than there is; the younger yields."""
    core = opened(f"engine.preempt={preempt}", pages=15)
    finishes = play(core, [ask(1, 60, 48), ask(2, 50, 54)])
    assert finishes["r1"].preemptions == 0
    assert finishes["r2"].preemptions >= 1


def test_twelve_requests_with_a_shared_prefix_run_to_their_ends(opened):
    """KV-03: a victim may find its own pages again; what is scheduled is what is not cached."""
    core = opened("engine.preempt=recompute", "engine.prefix_cache=auto", rows=12, pages=20)
    shared = [(7 * i) % 97 for i in range(32)]
    requests = []
    for i in range(12):
        ids = [*shared, *((i * 31 + j * 5) % 97 for j in range(8))]
        requests.append(ledger_request(ids, 5, 30, id=f"r{i}"))
        RIGHT[f"r{i}"] = continuation(ids, 5, 30)
    finishes = play(core, requests)
    assert sum(finish.preemptions for finish in finishes.values()) > 0


def test_a_prompt_that_is_run_again_samples_on_its_last_chunk_alone(opened):
    """KV-07: some tokens are given when it yields; each is counted once, and none told twice."""
    core = opened(
        "engine.preempt=recompute", "engine.token_budget=8", "engine.capture.tokens=[8]", pages=13
    )
    old, young = ask(1, 40, 60), ask(2, 20, 30)
    finishes = play(core, [old, young])
    assert finishes["r2"].preemptions >= 1
    assert (finishes["r2"].generated, finishes["r2"].prompt_items) == (30, 20)
    assert core.dropped_rows == 0


def test_thirteen_of_fourteen_aborted_in_one_turn_leave_the_last_to_finish(opened):
    """KV-11"""
    core = opened(rows=16, pages=40)
    requests = [ask(i, 5, 20) for i in range(14)]
    for request in requests:
        core.submit(request)
    for _ in range(6):
        core.turn()
    for request in requests[:13]:
        core.abort(request.id)
    turn_to_end(core)
    found = results(core)
    assert found["r13"].ids == RIGHT["r13"]
    assert [found[f"r{i}"].finish_reason for i in range(13)] == ["abort"] * 13


def test_an_id_in_use_is_refused_and_can_be_used_again_after_an_abort(opened):
    """KV-15: the other request goes on undisturbed; pressure or not."""
    core = opened(pages=13)
    first = ask(1, 5, 30)
    core.submit(first)
    core.turn()
    with pytest.raises(RequestError, match="no live request has"):
        core.submit(first)
    core.abort("r1")
    core.submit(first)
    turn_to_end(core)
    assert results(core)["r1"].ids[-30:] == RIGHT["r1"]


def test_a_slot_belongs_to_every_row_that_runs_so_more_wait_in_line(opened):
    """KV-16: states are as many as rows, whatever the line; captures are never larger."""
    core = opened("engine.capture.rows=[2]", rows=2, pages=40)
    state = core.nodes["ledger"].resources["state"]
    assert state.ids.num_ids == 2
    play(core, [ask(i, 5, 12) for i in range(9)])


def test_a_higher_priority_is_served_first_and_yields_last(opened):
    core = opened("engine.preempt=recompute", rows=2, pages=13)
    low = [ask(i, 30, 40) for i in (1, 2)]
    high = ask(3, 30, 40, priority=1)
    finishes = play(core, [*low, high])
    assert next(iter(finishes)) == "r3"
    assert finishes["r3"].preemptions == 0


def test_a_low_priority_waits_for_those_alone_that_arrive_soon_after_it(opened):
    """One after the other through one row: of two priorities, 512 turns make up for one."""
    core = opened(rows=1)
    core.submit(ask(0, 5, 30))
    core.turn()
    core.submit(ask(1, 5, 30))
    order, number = [], 2
    for turn in range(1400):
        if turn % 25 == 0 and number < 30:
            core.submit(ask(number, 5, 30, priority=1))
            number += 1
        core.turn()
        order += [e.request for e in core.drain() if isinstance(e, FinishEvent)]
    turn_to_end(core)
    place = order.index("r1")
    assert abs(place - 1 - AGE_TURNS // 25) <= 2


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_request_past_its_deadline_ends_with_what_it_has_wherever_it_is(opened):
    core = opened(rows=1)
    core._deadlines = Deadlines(Clock())
    core.submit(ask(1, 5, 30, deadline_s=2.0))
    core.submit(ask(2, 5, 30, deadline_s=1.0))
    core.submit(ask(3, 5, 30, deadline_s=9.0))
    for _ in range(6):
        core.turn()
    assert core.position("r2") == 0
    core._deadlines.clock.now = 101.5
    core.turn()
    assert core.position("r3") == 0
    core._deadlines.clock.now = 102.0
    turn_to_end(core)
    events = list(core.drain())
    finishes = {e.request: e for e in events if isinstance(e, FinishEvent)}
    assert list(finishes) == ["r2", "r1", "r3"]
    assert [finishes[name].reason for name in finishes] == ["error", "error", "length"]
    assert finishes["r1"].error["got"] == f"{finishes['r1'].generated} of 30 tokens in time"
    assert 0 < finishes["r1"].generated < 30


def test_the_line_has_a_bound_in_requests_and_in_tokens(opened):
    core = opened("limits.max_waiting=2", "limits.max_waiting_tokens=100", rows=1)
    core.submit(ask(1, 5, 30))
    core.turn()
    core.submit(ask(2, 5, 30))
    with pytest.raises(RequestError, match="75 tokens behind 35 that wait") as caught:
        core.submit(ask(3, 45, 30))
    assert caught.value.want.startswith("at most 100 together")
    core.submit(ask(4, 5, 30))
    with pytest.raises(RequestError, match="2 requests that wait") as caught:
        core.submit(ask(5, 1, 1))
    assert caught.value.want.startswith("fewer than 2")
    assert (core.stats()["waiting"], core.stats()["waiting_tokens"]) == (2, 70)
    turn_to_end(core)


def test_beyond_the_bytes_that_may_be_away_requests_are_run_again(opened):
    core = opened("engine.preempt=offload", "limits.host_offload_bytes=3000", rows=8, pages=16)
    play(core, many(40))
    stats = core.stats()
    assert stats["offload"]["offloads"] > 0
    assert stats["recomputed"] > 0
    assert core.pressure.offloads.num_bytes_away == 0


def test_what_may_be_away_is_counted_while_it_is_away(opened):
    most = []
    core = opened("engine.preempt=offload", "limits.host_offload_bytes=3000", rows=8, pages=16)
    for request in many(30, seed=3):
        core.submit(request)
    while core.turn():
        most.append(core.pressure.offloads.num_bytes_away)
    assert 0 < max(most) <= 3000 + 4 * 2 * 8 * 4 * 4  # and the steps in flight when it was decided


@pytest.mark.parametrize("preempt", ["offload", "recompute"])
def test_nobody_waits_longer_than_all_that_is_before_it_takes(opened, preempt):
    """The bound on waiting: a request ends within the turns that it and all of lower rank need."""
    core = opened(f"engine.preempt={preempt}", rows=8, pages=14)
    requests = many(40, seed=9)
    for request in requests:
        core.submit(request)
    ended, turn = {}, 0
    while core.turn():
        turn += 1
        ended |= {e.request: turn for e in core.drain() if isinstance(e, FinishEvent)}
    need = 0
    for request in requests:
        need += len(request.arrays["ids"]) + request.max_new_tokens
        assert ended[request.id] <= 4 * need + 50


def test_where_nobody_may_yield_one_request_fails_and_the_others_finish(opened, monkeypatch):
    core = opened("limits.host_offload_bytes=0", rows=2, pages=13)
    monkeypatch.setattr(core.pressure, "run_again", lambda arrays, tokens: None)
    core.submit(ask(1, 20, 60))
    core.submit(ask(2, 20, 60))
    late = [ask(3, 5, 30)]
    for _ in range(500):
        if late and core.pressure._short is not None:
            core.submit(late.pop())  # it waits, and keeps nobody waiting for ever
        if not core.turn():
            break
    found = results(core)
    assert [found[name].ids for name in ("r1", "r3")] == [RIGHT["r1"], RIGHT["r3"]]
    assert found["r2"].finish_reason == "error"
    assert "nobody that may yield" in found["r2"].error["got"]


def test_as_many_rows_are_launched_as_have_room(opened):
    """Three rows decode and the youngest finds no page: the two before it go on, and it is held."""
    core = opened("engine.in_flight=0", rows=3)
    requests = [ask(1, 5, 9), ask(2, 6, 9), ask(3, 7, 9)]
    for request in requests:
        core.submit(request)
    pool = core.nodes["ledger"].resources["kv"].table.pool
    core.turn()
    core.turn()
    taken, rows = pool.take(pool.num_free), core.lifecycle.counts.rows
    core.turn()
    assert core.lifecycle.counts.rows - rows == 2
    pool.give_back(taken, -1)
    turn_to_end(core)
    assert {n: r.ids for n, r in results(core).items()} == {r.id: RIGHT[r.id] for r in requests}


@pytest.mark.parametrize("preempt", ["offload", "recompute"])
def test_nobody_is_let_in_while_a_row_that_runs_is_short(opened, preempt):
    """Or what a victim gave up would go to a newcomer, or back to the victim, for ever."""
    core = opened(f"engine.preempt={preempt}", rows=16, pages=16)
    for request in many(60):
        core.submit(request)
    short_turns = 0
    while not core.idle:
        waited = core.pressure._short in core._running
        waiting, reloads = len(core.line), core.stats()["offload"]["reloads"]
        core.turn()
        if waited:
            short_turns += 1
            assert len(core.line) >= waiting
            assert core.stats()["offload"]["reloads"] == reloads
    assert short_turns > 20
    assert {n: r.ids for n, r in results(core).items()} == {
        f"r{i}": RIGHT[f"r{i}"] for i in range(60)
    }
