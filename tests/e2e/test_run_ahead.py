"""Steps in flight: what is launched before it is read, what that costs, and what it holds."""

import pytest

from mstar_core.engine.device import Lag
from mstar_core.engine.events import FinishEvent, TokenEvent
from mstar_core.testing.cores import check_over, open_ledger, results
from mstar_core.testing.ledger import continuation, ledger_request

SMALL = (
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=128",
    "nodes.ledger.resources.kv.page_tokens=8",
)
DEPTHS = pytest.mark.parametrize("depth", [0, 1, 2, 3])
LAGS = pytest.mark.parametrize("lag", [Lag(), Lag(seed=7)], ids=["latest", "seeded"])


@pytest.fixture
def opened(tmp_path):
    """Opens cores; each must have everything back in the end."""
    cores = []

    def open_core(depth, lag, *sets):
        core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}", *sets), lag)
        cores.append(core)
        return core

    yield open_core
    for core in cores:
        check_over(core)


@pytest.fixture
def order(monkeypatch):
    """The order in which steps were launched and retired, as ``("launch", 3)``."""
    from mstar_core.engine.lifecycle import Lifecycle

    seen, launch, retire = [], Lifecycle.launch, Lifecycle.retire

    def launched(self, step, rows):
        entry = launch(self, step, rows)
        seen.append(("launch", entry.number))
        return entry

    def retired(self, entry):
        seen.append(("retire", entry.number))
        return retire(self, entry)

    monkeypatch.setattr(Lifecycle, "launch", launched)
    monkeypatch.setattr(Lifecycle, "retire", retired)
    return seen


def request(name, salt, prompt=5, new=12, stop_at=None):
    """A request, and the tokens that it should give; ``stop_at`` is a token number."""
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    tokens = continuation(ids, salt, new)
    if stop_at is None:
        return ledger_request(ids, salt, new, id=name), tokens
    stop = tokens[stop_at]
    kept = tokens[: tokens.index(stop)]
    return ledger_request(ids, salt, new, id=name, stop_ids=frozenset({stop})), kept


def finish(core):
    while core.turn():
        pass
    return results(core)


@DEPTHS
@LAGS
def test_step_n_plus_depth_is_launched_before_step_n_is_read(opened, order, depth, lag):
    core = opened(depth, lag)
    given, tokens = request("a", 1)
    core.submit(given)
    assert finish(core)["a"].ids == tokens
    steps = len(tokens)
    launched = [("launch", n) for n in range(min(depth + 1, steps))]
    assert order[: depth + 1] == launched
    for n in range(steps - depth):
        assert order.index(("retire", n)) == order.index(("launch", n + depth)) + 1
    assert [n for what, n in order if what == "retire"] == list(range(steps))


@DEPTHS
def test_the_device_has_run_nothing_that_nobody_waited_for(opened, depth):
    """The lag is real: tokens come out although the launched steps have not run yet."""
    core = opened(depth, Lag())
    given, tokens = request("a", 1)
    core.submit(given)
    for _ in range(depth):
        core.turn()
        assert not core.events
    waiting = core.lifecycle.device.num_waiting
    assert waiting >= 2 * depth
    assert finish(core)["a"].ids == tokens


@DEPTHS
@LAGS
@pytest.mark.parametrize("stop_at", [0, 1, 5])
def test_a_stop_id_costs_exactly_the_rows_in_flight(opened, depth, lag, stop_at):
    core = opened(depth, lag)
    given, kept = request("a", 3, new=30, stop_at=stop_at)
    core.submit(given)
    found = finish(core)["a"]
    assert (found.ids, found.finish_reason) == (kept, "stop")
    assert core.dropped_rows == depth
    assert core.stats()["rows"] == len(kept) + 1 + depth


@DEPTHS
@LAGS
def test_a_limit_costs_no_row_because_it_is_known_before_the_launch(opened, depth, lag):
    core = opened(depth, lag)
    given, tokens = request("a", 3, new=9)
    core.submit(given)
    assert finish(core)["a"].ids == tokens
    assert core.dropped_rows == 0
    assert core.stats()["rows"] == 9


@pytest.mark.parametrize("depth", [1, 2, 3])
@LAGS
def test_pages_come_back_only_behind_the_last_step_that_names_them(opened, order, depth, lag):
    """KV-12: rows that were launched too often still write the pages."""
    core = opened(depth, lag)
    pool = core.nodes["ledger"].resources["kv"].table.pool
    whole = pool.num_free
    given, kept = request("a", 3, prompt=20, new=30, stop_at=4)
    core.submit(given)
    state = core._live["a"]
    while not state.over:
        core.turn()
    held = pool.num_cooling
    assert held == -(-(20 + len(kept) + depth) // 8)
    assert core.stats()["in_flight"] == depth
    while core.idle is False:
        assert pool.num_cooling == held
        assert pool.num_free == whole - held
        core.turn()
    assert order[-1] == ("retire", state.last_entry)
    assert (pool.num_cooling, pool.num_free) == (0, whole)


@pytest.mark.parametrize("depth", [1, 3])
@LAGS
def test_the_next_owner_of_a_page_waits_until_the_overrun_steps_are_read(opened, depth, lag):
    """KV-12: with a pool for one request, the second is admitted behind the fence and is right."""
    core = opened(depth, lag, "nodes.ledger.resources.kv.num_pages=5", "engine.admission=reserve")
    first, kept = request("a", 3, prompt=9, new=30, stop_at=4)
    second, tokens = request("b", 4, prompt=10, new=30)
    core.submit(first)
    core.submit(second)
    state = core._live["b"]
    last = core._live["a"]
    while state.handle < 0:
        core.turn()
    assert core.fences.retired >= last.last_entry
    found = finish(core)
    assert (found["a"].ids, found["b"].ids) == (kept, tokens)


@pytest.mark.parametrize("depth", [1, 2, 3])
@LAGS
def test_a_handle_is_given_out_again_only_when_no_entry_names_it(opened, depth, lag):
    core = opened(depth, lag)
    given, _ = request("a", 3, new=30, stop_at=4)
    core.submit(given)
    state = core._live["a"]
    while not state.over:
        core.turn()
    while core.fences.retired < state.last_entry:
        assert core.table.num_free == core.table.num_handles - 1
        core.turn()
    assert core.table.num_free == core.table.num_handles


@DEPTHS
@LAGS
def test_a_prompt_that_arrives_costs_its_own_steps_and_joins_the_others(opened, depth, lag):
    core = opened(depth, lag)
    given = [request(f"r{i}", i + 1, prompt=8, new=20) for i in range(7)]
    for one, _ in given:
        core.submit(one)
    core.turn()
    assert core.stats()["by_walk"] == {"prefill": 1}
    for _ in range(6):
        core.turn()
    late, tokens = request("late", 90, prompt=16, new=5)
    core.submit(late)
    found = finish(core)
    for i, (_, right) in enumerate(given):
        assert found[f"r{i}"].ids == right
    assert found["late"].ids == tokens
    assert core.stats()["by_walk"] == {"prefill": 2, "decode": 19}
    assert core.stats()["rows"] == 7 + 7 * 19 + 1 + 4


@DEPTHS
@LAGS
def test_a_gated_request_has_one_unread_step_while_others_run_ahead(opened, depth, lag):
    core = opened(depth, lag)
    free, tokens = request("free", 1, new=10)
    ids = [3, 1, 4]
    core.submit(free)
    core.submit(ledger_request(ids, 2, 6, id="gated", gated=True))
    gated = core._live["gated"]
    most = 0
    while core.turn():
        assert gated.tracks[0].unread <= 1
        most = max(most, core.stats()["in_flight"])
    found = results(core)
    assert found["free"].ids == tokens
    assert found["gated"].ids == continuation(ids, 2, 6)
    assert most == depth


@DEPTHS
@LAGS
@pytest.mark.parametrize("late", [0, 1, 4])
def test_an_outside_stop_any_number_of_steps_late_keeps_what_was_accepted(opened, depth, lag, late):
    core = opened(depth, lag)
    given, tokens = request("a", 5, new=30)
    core.submit(given)
    emitted = []
    while len(emitted) < 6:
        core.turn()
        emitted += [e for e in core.drain() if isinstance(e, TokenEvent)]
    for _ in range(late):
        core.turn()
    list(core.drain())
    core.stop("a", 6)
    (end,) = core.drain()
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.generated) == ("stop", 6)
    assert [e.token for e in emitted[:6]] == tokens[:6]
    while core.turn():
        pass
    assert list(core.drain()) == []
    assert core.dropped_rows <= depth


@DEPTHS
def test_a_host_block_is_written_again_only_when_its_step_was_read(opened, depth):
    """KV-13: forty chunks without a sample between them, on a device that is as late as can be."""
    core = opened(depth, Lag(), "engine.token_budget=2", "engine.min_chunk=1")
    given, tokens = request("a", 6, prompt=80, new=8)
    core.submit(given)
    assert finish(core)["a"].ids == tokens
    assert core.stats()["by_walk"] == {"prefill": 40, "decode": 7}


@DEPTHS
@LAGS
def test_a_decode_is_launched_while_its_prompts_last_chunk_is_unread(opened, order, depth, lag):
    """The first token of a request never passes through the host on its way to the next step."""
    core = opened(depth, lag)
    given, tokens = request("a", 6, prompt=10, new=4)
    core.submit(given)
    assert finish(core)["a"].ids == tokens
    if depth:
        assert order.index(("launch", 1)) < order.index(("retire", 0))


@DEPTHS
@LAGS
def test_everything_stays_right_when_all_ends_differ(opened, depth, lag):
    core = opened(depth, lag)
    given = [request(f"r{i}", i + 1, prompt=3 * i + 1, new=4 + 2 * i) for i in range(6)]
    given += [request(f"s{i}", i + 20, prompt=7 + i, new=20, stop_at=2 * i) for i in range(6)]
    for one, _ in given:
        core.submit(one)
    found = finish(core)
    assert {name: r.ids for name, r in found.items()} == {one.id: ids for one, ids in given}
