"""Faults that users of other engines reported, tried on captured steps and on text."""

import numpy as np
import pytest

from mstar_core.engine.device import Lag
from mstar_core.engine.engine import Engine
from mstar_core.engine.texts import stream_text
from mstar_core.errors import RequestError
from mstar_core.testing.cores import open_ledger, open_wired, run_all
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.playing import poison
from mstar_core.testing.scripted import SCRIPTED, Script

SMALL = (
    "engine.token_budget=64",
    "engine.max_context=256",
    "nodes.ledger.resources.kv.page_tokens=8",
)


def request(salt, prompt, new, **more):
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=f"r{salt}", **more)


def right(given):
    ids, salt = given.arrays["ids"].tolist(), int(given.arrays["salt"][0])
    return continuation(ids, salt, given.max_new_tokens)


@pytest.mark.parametrize("lag", [None, Lag()], ids=str)
def test_a_replay_follows_lengths_that_grow_over_many_pages(tmp_path, lag):
    """CG-01: captured at length 0, replayed while four rows grow far apart."""
    sets = (*SMALL, "engine.max_rows=4", "engine.graphs=recorder", "engine.capture.rows=[4]")
    core, _ = open_ledger(tmp_path, sets, lag)
    given = [request(i + 1, prompt, 120) for i, prompt in enumerate((5, 130, 33, 90))]
    found = run_all(core, given)
    assert [found[g.id].ids for g in given] == [right(g) for g in given]
    counts = core.stats()
    assert counts["replayed"] >= 119
    assert "decode" not in counts["eager_by_walk"]


def test_buckets_of_different_rows_alternate_without_touching_each_other(tmp_path):
    """CG-08: one graph per bucket; a crowd comes and goes beside one long request."""
    sets = (*SMALL, "engine.max_rows=4", "engine.graphs=recorder", "engine.capture.rows=[1, 4]")
    core, _ = open_ledger(tmp_path, sets)
    long = request(1, 9, 200)
    core.submit(long)
    crowd = [request(2 + i, 3 + i % 5, 4) for i in range(60)]
    waiting, ids = list(crowd), {}
    turns = 0
    while core.turn():
        turns += 1
        if turns % 9 == 0:
            for given in waiting[:3]:
                core.submit(given)
            del waiting[:3]
        for event in core.drain():
            if hasattr(event, "token"):
                ids.setdefault(event.request, []).append(event.token)
    assert not waiting
    assert [ids[g.id] for g in (long, *crowd)] == [right(g) for g in (long, *crowd)]
    used = {b.rows for b in core.lifecycle.buckets.captured if b.kind == "decode"}
    assert used == {1, 4}


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_padded_rows_write_into_nobody(tmp_path, rows):
    """GDN-03, GDN-05: fewer live rows than the bucket has, over memory that holds NaN, 50 steps."""
    sets = (*SMALL, "engine.max_rows=4", "engine.graphs=recorder", "engine.capture.rows=[4]")
    core, _ = open_ledger(tmp_path, sets)
    poison(core)
    given = [request(i + 1, 3 + i, 50) for i in range(rows)]
    found = run_all(core, given)
    assert [found[g.id].ids for g in given] == [right(g) for g in given]
    assert "decode" not in core.stats()["eager_by_walk"]


def test_no_bucket_and_no_slot_is_larger_or_fewer_than_the_rows(tmp_path):
    """KV-16: slots follow the rows, and so do the sizes that are captured."""
    core, _ = open_ledger(tmp_path, (*SMALL, "engine.max_rows=6", "engine.graphs=recorder"))
    assert core.held()["ledger.state slots"] == (6, 6)
    assert max(b.rows for b in core.lifecycle.buckets.captured if b.kind == "decode") == 6


def test_the_last_chunk_samples_once_and_no_other_chunk_samples(tmp_path):
    """KV-07: whether a step samples is known from the prompt's end, not from what was generated."""
    sets = (*SMALL, "engine.max_rows=2", "engine.min_chunk=1", "engine.token_budget=8")
    core, wired, _ = open_wired(SCRIPTED, tmp_path, (*sets, "engine.graphs=off"))
    given = request(1, 30, 3)
    assert run_all(core, [given])[given.id].ids == right(given)
    walks = [walk for walk, _ in wired.nodes["ledger"].submodule.steps]
    assert walks == ["prefill"] * 4 + ["decode"] * 2


# -- text ----------------------------------------------------------------------------------


@pytest.fixture
def engine(tmp_path):
    """An engine whose request of salt 1 says a fixed text, and the ledger's own behind it."""
    core, wired, report = open_wired(SCRIPTED, tmp_path, (*SMALL, "engine.max_rows=4"))
    core.nodes["ledger"].submodule.scripts[1] = Script(prompt=4, tokens=[12, 34, 56, 78, 90, 11])
    with Engine(core, wired, report) as opened:
        yield opened


def pieces(engine, given):
    deltas = list(stream_text(engine, given))
    return "".join(d.text for d in deltas), sum(d.num_tokens for d in deltas), deltas[-1]


def test_a_stop_string_across_tokens_ends_the_request_in_the_engine(engine):
    """DT-01: nothing of the stop is given out, the tokens up to it are counted."""
    text, count, last = pieces(engine, request(1, 4, 100, stop=("4 56 7",)))
    assert (text, count) == ("12 3", 4)
    assert (last.finish_reason, last.stop) == ("stop", "4 56 7")
    again = request(2, 7, 5)
    assert engine.run([again])[0].ids == right(again)
    assert engine.stats()["running"] == 0


def test_a_stop_string_that_never_comes_holds_nothing_back(engine):
    """DT-02: the limit ends it, and every token's text is there."""
    text, count, last = pieces(engine, request(1, 4, 6, stop=("56 79", "zzzz")))
    assert (text, count, last.finish_reason) == ("12 34 56 78 90 11", 6, "length")


def test_an_empty_stop_string_is_that_requests_error(engine):
    with pytest.raises(RequestError):
        pieces(engine, request(1, 4, 6, stop=("",)))
    good = request(3, 5, 4)
    assert engine.run([good])[0].ids == right(good)


def test_ids_at_the_edge_of_the_vocabulary_are_taken_and_one_past_it_is_not(engine):
    """API-10: the embedding's size decides, and the neighbour is not affected."""
    edge, past, good = request(4, 3, 2), request(5, 3, 2), request(6, 3, 2)
    edge.arrays["ids"][1] = 96
    past.arrays["ids"][1] = 97
    results = engine.run([edge, past, good])
    assert [r.finish_reason for r in results] == ["length", "error", "length"]
    assert results[1].error["where"] == "arrays.ids"
    assert "97" in results[1].error["got"]
    assert results[2].ids == right(good)
    assert np.all(edge.arrays["ids"] < 97)
