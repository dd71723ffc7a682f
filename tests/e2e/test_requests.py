"""One request's fate: at the door, when something raises, and after it the next one's."""

import numpy as np
import pytest

from mstar_core.engine.device import Lag
from mstar_core.errors import RequestError
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_ledger, results, run_all
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.playing import poison
from mstar_core.testing.scripted import Script, open_scripted

SMALL = (
    "engine.max_rows=4",
    "engine.token_budget=32",
    "engine.max_context=64",
    "nodes.ledger.resources.kv.page_tokens=8",
)
EVERY_DEVICE = pytest.mark.parametrize(
    ("depth", "lag"),
    [(d, lag) for d in (0, 1, 2, 3) for lag in (None, Lag(), Lag(seed=5))],
    ids=str,
)


def request(salt, prompt=5, new=8, **more):
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=more.pop("id", f"r{salt}"), **more)


def right(given):
    ids, salt = given.arrays["ids"].tolist(), int(given.arrays["salt"][0])
    return continuation(ids, salt, given.max_new_tokens)


def assert_serves(core):
    """Nothing is held, and one normal request gives the reference answer."""
    while core.turn():
        pass
    core.check_conserved()
    assert core.idle
    assert core.table.num_free == core.table.num_handles
    assert core.fences.num_cooling == 0
    given = request(96, prompt=13)
    assert run_all(core, [given])[given.id].ids == right(given)


# -- the door ------------------------------------------------------------------------------


def arrays(**changed):
    ids = np.arange(5, dtype=np.int64)
    return {"ids": ids, "salt": np.ones(5, np.int64)} | changed


REFUSED = {
    "no prompt": (arrays(ids=np.zeros(0, np.int64)), 4, "arrays.ids", "no items", "at least one"),
    "absent": ({"ids": np.arange(5)}, 4, "arrays.salt", "absent", "int64 [items]"),
    "a list": (arrays(ids=[1, 2, 3]), 4, "arrays.ids", "a list", "numpy array"),
    "float ids": (arrays(ids=np.ones(5, np.float32)), 4, "arrays.ids", "float32 [5]", "int64"),
    "bool ids": (arrays(ids=np.ones(5, bool)), 4, "arrays.ids", "bool [5]", "int64"),
    "text ids": (arrays(ids=np.array(["a"] * 5)), 4, "arrays.ids", "<U1 [5]", "int64"),
    "two axes": (arrays(ids=np.ones((5, 1), np.int64)), 4, "arrays.ids", "[5, 1]", "int64 [items]"),
    "no axis": (arrays(ids=np.array(3)), 4, "arrays.ids", "int64 []", "int64 [items]"),
    "id too large": (arrays(ids=np.array([1, 97, 2, 3, 4])), 4, "arrays.ids", "97", "0 to 96"),
    "id negative": (arrays(ids=np.array([1, -1, 2, 3, 4])), 4, "arrays.ids", "-1", "0 to 96"),
    "two lengths": (arrays(salt=np.ones(4, np.int64)), 4, "arrays", "'salt': 4", "one length"),
    "no tokens": (arrays(), 0, "max_new_tokens", "0", "at least 1"),
    "negative": (arrays(), -1, "max_new_tokens", "-1", "at least 1"),
    "half a token": (arrays(), 1.5, "max_new_tokens", "1.5", "an integer"),
    "true": (arrays(), True, "max_new_tokens", "True", "an integer"),
    "words": (arrays(), "5", "max_new_tokens", "'5'", "an integer"),
    "beyond int32": (arrays(), 1 << 31, "prompt + max_new_tokens", str(1 << 31), "64 tokens"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_could_never_be_served_is_refused_with_four_facts(tmp_path, case):
    """API-02, API-03, API-10: the door names the field, what it got, what it takes, what to do."""
    given, new, where, got, want = REFUSED[case]
    core, _ = open_ledger(tmp_path, SMALL)
    with pytest.raises(RequestError) as caught:
        core.submit(Request(arrays=given, max_new_tokens=new))
    facts = caught.value.facts()
    assert facts["where"] == where
    assert got in facts["got"]
    assert want in facts["want"]
    assert facts["fix"]
    assert core.stats()["waiting"] == 0
    assert_serves(core)


@pytest.mark.parametrize(
    ("prompt", "new", "fix"),
    [
        (60, 10, "ask for at most 4 tokens"),
        (63, 2, "ask for at most 1 tokens"),
        (64, 1, "shorten the prompt to 63 tokens"),
        (65, 1, "shorten the prompt to 63 tokens"),
    ],
)
def test_prompt_and_answer_beyond_the_context_are_refused_with_all_three_numbers(
    tmp_path, prompt, new, fix
):
    """API-01: what it advises can be done."""
    core, _ = open_ledger(tmp_path, SMALL)
    with pytest.raises(RequestError) as caught:
        core.submit(request(1, prompt=prompt, new=new))
    text = str(caught.value)
    assert f"{prompt} prompt tokens and {new} new ones" in text
    assert "at most 64 tokens together" in text
    assert fix in text
    assert_serves(core)


def test_the_longest_request_of_the_context_is_served(tmp_path):
    core, _ = open_ledger(tmp_path, SMALL)
    given = [request(1, prompt=63, new=1), request(2, prompt=1, new=63)]
    found = run_all(core, given)
    assert [found[r.id].ids for r in given] == [right(r) for r in given]


def test_a_request_larger_than_the_whole_pool_is_refused_at_the_door_with_numbers(tmp_path):
    """KV-06: it would wait for ever, so it is not let in."""
    core, _ = open_ledger(tmp_path, (*SMALL, "nodes.ledger.resources.kv.num_pages=3"))
    with pytest.raises(RequestError) as caught:
        core.submit(request(1, prompt=20, new=6))
    assert caught.value.where == "resource kv"
    assert "25 tokens" in str(caught.value.got)
    assert "24 tokens" in caught.value.want
    fits = request(2, prompt=20, new=5)
    assert run_all(core, [fits])[fits.id].ids == right(fits)


def test_an_id_can_be_used_again_once_its_request_is_over(tmp_path):
    """KV-15: also while the first one's last steps are still in flight."""
    core, _ = open_ledger(tmp_path, (*SMALL, "engine.in_flight=3"), Lag())
    first, second = request(1, new=20, id="a"), request(2, id="a")
    core.submit(first)
    with pytest.raises(RequestError, match="an id that no live request has"):
        core.submit(second)
    for _ in range(6):
        core.turn()
    list(core.drain())
    core.abort("a")
    core.submit(second)
    while core.turn():
        pass
    (end, *events) = core.drain()
    assert end.reason == "abort"
    assert [e.token for e in events[:-1]] == right(second)
    assert_serves(core)


def test_stopping_what_is_unknown_or_over_changes_nothing(tmp_path):
    """KV-09"""
    core, _ = open_ledger(tmp_path, SMALL)
    given = request(1)
    found = run_all(core, [given])
    core.abort(given.id)
    core.abort("never seen")
    core.stop(given.id, 2)
    core.stop("never seen", 2)
    assert found[given.id].ids == right(given)
    assert list(core.drain()) == []
    assert_serves(core)


# -- lines and ends ------------------------------------------------------------------------


@EVERY_DEVICE
def test_more_requests_than_rows_wait_in_line_and_all_finish(tmp_path, depth, lag):
    core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}"), lag)
    given = [request(n, prompt=n % 9 + 1, new=n % 7 + 1) for n in range(1, 31)]
    for one in given:
        core.submit(one)
    assert core.stats()["waiting"] == 30
    most = 0
    while core.turn():
        most = max(most, core.num_running)
    found = results(core)
    assert {r.id: found[r.id].ids for r in given} == {r.id: right(r) for r in given}
    assert most == 4
    assert_serves(core)


@EVERY_DEVICE
def test_a_request_for_one_token_takes_its_prompt_and_no_step_more(tmp_path, depth, lag):
    core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}"), lag)
    given = request(1, new=1)
    found = run_all(core, [given])[given.id]
    assert (found.ids, found.finish_reason) == (right(given), "length")
    assert core.stats()["by_walk"] == {"prefill": 1}


def test_a_request_that_is_aborted_in_line_leaves_it_and_took_nothing(tmp_path):
    core, _ = open_ledger(tmp_path, (*SMALL, "engine.max_rows=1"))
    running, waiting, last = request(1), request(2), request(3)
    for one in (running, waiting, last):
        core.submit(one)
    core.turn()
    core.abort(waiting.id)
    while core.turn():
        pass
    found = results(core)
    assert found[waiting.id].finish_reason == "abort"
    assert found[waiting.id].ids == []
    assert (found[running.id].ids, found[last.id].ids) == (right(running), right(last))
    assert_serves(core)


@EVERY_DEVICE
def test_thirteen_of_fourteen_aborted_in_one_turn_leave_the_last_one_right(tmp_path, depth, lag):
    """KV-11"""
    sets = (*SMALL, "engine.max_rows=14", f"engine.in_flight={depth}")
    core, _ = open_ledger(tmp_path, sets, lag)
    given = [request(n, new=20) for n in range(1, 15)]
    for one in given:
        core.submit(one)
    for _ in range(9):
        core.turn()
    for one in given[:6] + given[7:]:
        core.abort(one.id)
    while core.turn():
        pass
    assert results(core)[given[6].id].ids == right(given[6])
    assert_serves(core)


@EVERY_DEVICE
def test_a_recycled_slot_shows_its_next_user_nothing(tmp_path, depth, lag):
    """GDN-13: one slot, many requests, with pools that hold NaN before anything is written."""
    core, _ = open_ledger(tmp_path, (*SMALL, "engine.max_rows=1", f"engine.in_flight={depth}"), lag)
    poison(core)
    core.nodes["ledger"].resources["state"].pool.blocks["hash"].fill_(12345)
    given = [request(n, prompt=9, new=5) for n in range(1, 6)]
    found = run_all(core, given)
    assert [found[r.id].ids for r in given] == [right(r) for r in given]
    assert_serves(core)


# -- what raises ---------------------------------------------------------------------------


@EVERY_DEVICE
def test_a_raise_in_a_forward_fails_its_request_and_nobody_else(tmp_path, depth, lag):
    """API-08: tokens of earlier steps come out, then the error; who was in the step is right."""
    scripts = {2: Script(prompt=5, raise_at=3)}
    core, _ = open_scripted(
        tmp_path, scripts, (*SMALL, "engine.max_rows=2", f"engine.in_flight={depth}"), lag
    )
    given = [request(1), request(2), request(3), request(4)]
    found = run_all(core, given)
    bad = found["r2"]
    assert (bad.finish_reason, bad.ids) == ("error", right(given[1])[:3])
    assert bad.error["where"] == "request r2"
    for one in given:
        if one.id != "r2":
            assert found[one.id].ids == right(one)
    assert_serves(core)


@EVERY_DEVICE
def test_a_row_that_is_not_finite_fails_alone(tmp_path, depth, lag):
    """GDN-22: its neighbours, and the next user of its slot and pages, are right."""
    scripts = {2: Script(prompt=5, nan_at=3)}
    core, _ = open_scripted(tmp_path, scripts, (*SMALL, f"engine.in_flight={depth}"), lag)
    given = [request(n, new=10) for n in range(1, 5)] + [request(n, prompt=20) for n in (5, 6, 7)]
    found = run_all(core, given)
    bad = found["r2"]
    assert (bad.finish_reason, bad.ids) == ("error", right(given[1])[:3])
    assert "not finite" in bad.error["got"]
    for one in given:
        if one.id != "r2":
            assert found[one.id].ids == right(one)
    assert_serves(core)


@EVERY_DEVICE
@pytest.mark.parametrize("verb", ["declare_step", "room", "take", "plan", "commit"])
def test_a_raise_that_does_not_come_again_while_a_step_is_prepared_fails_nobody(
    tmp_path, monkeypatch, depth, lag, verb
):
    core, _ = open_ledger(tmp_path, (*SMALL, "engine.max_rows=2", f"engine.in_flight={depth}"), lag)
    node = core.nodes["ledger"]
    owner = node.submodule if verb == "declare_step" else node.resources["kv"]
    original, calls = getattr(owner, verb), []

    def raises_once(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise ZeroDivisionError(verb)
        return original(*arguments)

    given = [request(n) for n in range(1, 6)]
    for one in given:
        core.submit(one)
    monkeypatch.setattr(type(owner), verb, lambda self, *arguments: raises_once(*arguments))
    while core.turn():
        pass
    found = results(core)
    assert core.stats()["caught"] == 2
    assert {r.id: found[r.id].ids for r in given} == {r.id: right(r) for r in given}
    assert_serves(core)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("turn", range(4, 14))
def test_a_step_that_raised_keeps_its_place_in_the_rings(tmp_path, monkeypatch, depth, turn):
    """KV-13: host blocks are counted by entries, so a step that failed is an entry, too."""
    budget = ("engine.token_budget=8", "engine.min_chunk=4")
    core, _ = open_ledger(tmp_path, (*SMALL, *budget, f"engine.in_flight={depth}"), Lag())
    kv = type(core.nodes["ledger"].resources["kv"])
    original, fails = kv.commit, []

    def commit(self, step):
        original(self, step)
        if fails:
            raise ZeroDivisionError(fails.pop())

    monkeypatch.setattr(kv, "commit", commit)
    given = [request(n, prompt=20, new=9) for n in range(1, 5)]
    for one in given:
        core.submit(one)
    for _ in range(turn):
        core.turn()
    fails.append("behind the launch")
    while core.turn():
        pass
    found = results(core)
    reasons = [found[one.id].finish_reason for one in given]
    caught = core.stats()["caught"]
    assert (reasons.count("error"), caught) == (1, 0) or (reasons.count("error") == 0 < caught)
    for one, reason in zip(given, reasons, strict=True):
        ids = found[one.id].ids
        assert ids == right(one)[: len(ids)]
        assert len(ids) == 9 or reason == "error"
    assert_serves(core)


def test_two_cores_of_one_process_share_nothing(tmp_path):
    cores = [open_ledger(tmp_path / name, SMALL, Lag())[0] for name in "ab"]
    given = [request(1, id="same", new=9), request(2, id="same", new=9)]
    for core, one in zip(cores, given, strict=True):
        core.submit(one)
    while sum(core.turn() for core in cores):
        pass
    for core, one in zip(cores, given, strict=True):
        assert results(core)["same"].ids == right(one)
        assert_serves(core)


@pytest.mark.parametrize("budget", [2, 3])
def test_a_budget_below_the_rows_serves_every_row_in_the_end(tmp_path, budget):
    sets = (*SMALL, f"engine.token_budget={budget}", "engine.min_chunk=1")
    core, _ = open_ledger(tmp_path, sets)
    given = [request(n, new=9) for n in range(1, 8)]
    found = run_all(core, given)
    assert {r.id: found[r.id].ids for r in given} == {r.id: right(r) for r in given}
