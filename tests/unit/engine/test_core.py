"""The engine's turn: one launch, then what is older than the steps in flight is read."""

import pytest

from mstar_core.engine.device import Lag
from mstar_core.engine.events import FinishEvent, TokenEvent
from mstar_core.sched import Scheduler
from mstar_core.testing.cores import open_ledger, results
from mstar_core.testing.ledger import continuation, ledger_request

SETS = ("engine.max_rows=2", "engine.token_budget=32", "engine.max_context=64")


def opened(tmp_path, depth=1, lag=None):
    return open_ledger(tmp_path, (*SETS, f"engine.in_flight={depth}"), lag)[0]


def test_a_turn_without_work_does_nothing(tmp_path):
    core = opened(tmp_path)
    assert core.turn() is False
    assert core.idle
    assert list(core.drain()) == []


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_the_first_token_comes_depth_turns_after_its_launch(tmp_path, depth):
    core = opened(tmp_path, depth, Lag())
    core.submit(ledger_request([1, 2], 1, 9))
    for _ in range(depth):
        core.turn()
        assert list(core.drain()) == []
    core.turn()
    (event,) = core.drain()
    assert event.token == continuation([1, 2], 1, 1)[0]


def test_a_turn_that_launches_nothing_reads_one_entry(tmp_path):
    core = opened(tmp_path, 3, Lag())
    core.submit(ledger_request([1, 2], 1, 3))
    flying = []
    while core.turn():
        flying.append(core.stats()["in_flight"])
    assert flying == [1, 2, 3, 2, 1, 0]


def test_tokens_come_before_the_finish_and_nothing_after_it(tmp_path):
    core = opened(tmp_path)
    core.submit(ledger_request([1, 2], 1, 3, id="a"))
    while core.turn():
        pass
    events = list(core.drain())
    assert [type(e) for e in events] == [TokenEvent] * 3 + [FinishEvent]
    assert (events[-1].prompt_items, events[-1].generated) == (2, 3)


def test_a_stop_id_is_neither_given_out_nor_counted(tmp_path):
    core = opened(tmp_path)
    tokens = continuation([1, 2], 1, 5)
    stops = frozenset({tokens[3]})
    core.submit(ledger_request([1, 2], 1, 5, id="a", stop_ids=stops))
    core.submit(ledger_request([1, 2], 1, 5, id="b", stop_ids=stops, ignore_stop_ids=True))
    while core.turn():
        pass
    found = results(core)
    assert (found["a"].ids, found["a"].finish_reason) == (tokens[:3], "stop")
    assert (found["b"].ids, found["b"].finish_reason) == (tokens, "length")


def test_a_stop_id_as_the_last_token_allowed_is_a_stop(tmp_path):
    core = opened(tmp_path)
    tokens = continuation([1, 2], 1, 3)
    assert tokens[2] not in tokens[:2]
    core.submit(ledger_request([1, 2], 1, 3, id="a", stop_ids=frozenset({tokens[2]})))
    while core.turn():
        pass
    assert results(core)["a"].finish_reason == "stop"


def test_a_stop_from_outside_takes_back_what_is_past_it(tmp_path):
    core = opened(tmp_path)
    core.submit(ledger_request([1, 2], 1, 30, id="a"))
    for _ in range(9):
        core.turn()
    assert core.num_generated("a") == 8
    core.stop("a", 5)
    assert core.num_generated("a") == 0
    *_, finish = core.drain()
    assert (finish.reason, finish.generated) == ("stop", 5)


def test_ending_everything_ends_those_in_line_too(tmp_path):
    core = opened(tmp_path)
    for n in range(5):
        core.submit(ledger_request([1, 2], n + 1, 9, id=f"r{n}"))
    for _ in range(4):
        core.turn()
    core.abort_all()
    assert {e.reason for e in core.drain() if isinstance(e, FinishEvent)} == {"abort"}
    while core.turn():
        pass
    core.check_conserved()
    assert core.stats()["waiting"] == 0


def test_what_is_not_given_back_is_named(tmp_path):
    core = opened(tmp_path)
    core.submit(ledger_request([1, 2], 1, 9, id="a"))
    core.turn()
    with pytest.raises(RuntimeError, match=r"ledger\.state slots.*\(1, 2\)"):
        core.check_conserved()


def test_work_that_cannot_be_launched_is_reported_and_ended(tmp_path, monkeypatch):
    """KV-05: a watchdog, not a loop that spins for ever."""
    core = opened(tmp_path)
    monkeypatch.setattr(Scheduler, "_ready", lambda self, state, track: None)
    core.submit(ledger_request([1, 2], 1, 9, id="a"))
    while core.turn():
        pass
    assert results(core)["a"].finish_reason == "error"
    core.check_conserved()


def test_an_end_says_how_long_the_request_waited_to_be_let_in(tmp_path):
    core = open_ledger(tmp_path, ("engine.max_rows=1", *SETS[1:]), None)[0]
    first, second, third = (ledger_request([1, 2], 1, 3) for _ in range(3))
    for request in (first, second, third):
        core.submit(request)
    core.turn()
    core.abort(third.id)
    while core.turn():
        pass
    waited = {e.request: e.queued_s for e in core.drain() if isinstance(e, FinishEvent)}
    assert 0 <= waited[first.id] < waited[second.id]
    assert waited[third.id] is None
