"""Requests that leave the device in the middle and come back: same tokens, everything conserved."""

import itertools

import pytest
import torch

from mstar_core.engine.device import Lag
from mstar_core.engine.events import FinishEvent
from mstar_core.engine.node import NodeRuntime
from mstar_core.resident import ResidentPlanner
from mstar_core.resources.base import Resource
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.state import StateResource
from mstar_core.step import Plan
from mstar_core.testing import fuzz
from mstar_core.testing.cores import check_over, open_ledger, results
from mstar_core.testing.fuzz import FuzzFailure, fuzz_ledger
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.playing import poison

SETS = (
    "engine.max_rows=4",
    "engine.token_budget=16",
    "engine.min_chunk=4",
    "engine.max_context=128",
    "engine.capture.rows=[2, 4]",
    "engine.capture.tokens=[16]",
    "nodes.ledger.resources.kv.page_tokens=8",
    "debug.row_check=true",
)
MODES = {
    "eager": ("engine.graphs=off",),
    "recorder": ("engine.graphs=recorder", "engine.resident=off"),
    "resident": ("engine.graphs=recorder",),
}
SEEDED = Lag(5)
DEPTHS = pytest.mark.parametrize("depth", [0, 1, 2, 3])


@pytest.fixture
def opened(tmp_path):
    """Opens cores with NaN in every page; each must be idle and have everything back in the end."""
    cores = []

    def open_core(*sets, lag=SEEDED, mode="resident"):
        core, _ = open_ledger(tmp_path, (*SETS, *MODES[mode], *sets), lag)
        poison(core)
        cores.append(core)
        return core

    yield open_core
    for core in cores:
        check_over(core)


def ask(salt, prompt=5, new=30):
    """A request, and the tokens that it should give."""
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=f"r{salt}"), continuation(ids, salt, new)


def play(core, asked, script=None):
    """Take turns to the end; ``script`` is turn → what to call with the core before it."""
    script = dict(script or {})
    for request, _ in asked:
        core.submit(request)
    for turn in itertools.count():
        if turn in script:
            script.pop(turn)(core)
        if not core.turn() and not script:
            return results(core) if core.idle else {}


def leave(name):
    return lambda core: core.offload(name)


def back(name):
    return lambda core: core.reload(name)


def resource(core, key):
    return core.nodes["ledger"].resources[key]


def counts(core):
    return core.stats()["offload"]


@DEPTHS
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lag", [None, Lag(), Lag(11)], ids=["at once", "latest", "seeded"])
def test_an_offload_in_the_middle_of_decode_changes_no_token(opened, mode, depth, lag):
    core = opened(f"engine.in_flight={depth}", mode=mode, lag=lag)
    asked = [ask(salt) for salt in (1, 2, 3)]
    script = {7: leave("r2"), 9: leave("r1"), 15: back("r2"), 19: back("r1")}
    found = play(core, asked, script)
    assert [found[r.id].ids for r, _ in asked] == [tokens for _, tokens in asked]
    assert counts(core)["offloads"] == counts(core)["reloads"] == 2
    assert counts(core)["rows_given_up"] == (2 if mode == "resident" else 0)


@DEPTHS
@pytest.mark.parametrize("mode", MODES)
def test_an_offload_between_the_chunks_of_a_prompt_changes_no_token(opened, mode, depth):
    core = opened(f"engine.in_flight={depth}", mode=mode)
    asked = [ask(1, prompt=70), ask(2, prompt=60, new=10)]
    found = play(core, asked, {2: leave("r1"), 8: back("r1")})
    assert [found[r.id].ids for r, _ in asked] == [tokens for _, tokens in asked]
    assert counts(core)["offloads"] == 1
    assert counts(core)["rows_given_up"] == 0  # it has not decoded


def test_a_request_that_took_no_step_yet_leaves_and_comes_back(opened):
    core = opened("engine.token_budget=4", "engine.capture.tokens=[4]")
    asked = [ask(1, prompt=40), ask(2)]
    found = play(core, asked, {1: leave("r2"), 4: back("r2")})
    assert [found[r.id].ids for r, _ in asked] == [tokens for _, tokens in asked]
    assert counts(core)["offloads"] == 1


@DEPTHS
def test_its_steps_are_read_before_it_leaves_and_its_tokens_are_kept(opened, depth):
    core = opened(f"engine.in_flight={depth}")
    (request, tokens) = ask(1)
    core.submit(request)
    for _ in range(8):
        core.turn()
    read = core.num_generated("r1")
    assert core.offload("r1") is None
    while core.turn():
        pass
    assert core.num_generated("r1") == read + depth
    assert not core.idle
    assert core.num_running == 0
    core.reload("r1")
    while core.turn():
        pass
    assert results(core)["r1"].ids == tokens


def test_all_that_it_held_is_free_while_it_is_away(opened):
    core = opened("engine.in_flight=2")
    request, tokens = ask(1, prompt=20)
    found = play(core, [(request, tokens)], {10: leave("r1")})
    assert found == {}
    kv, state = resource(core, "kv"), resource(core, "state")
    assert kv.table.pool.num_free == kv.table.pool.num_ids
    assert kv.table.num_owed == 0
    assert state.ids.num_free == state.ids.num_ids
    assert core.nodes["ledger"].planner.slots.num_free == 2 * 4
    core.reload("r1")
    while core.turn():
        pass
    assert results(core)["r1"].ids == tokens


def test_it_comes_back_into_other_pages_and_another_slot_and_its_row_is_written_whole(opened):
    core = opened("engine.in_flight=1")
    first, second = ask(1), ask(2)
    kv, state, carry = (resource(core, key) for key in ("kv", "state", "carry"))
    counted, seen = core.nodes["ledger"].planner.counts, []

    def look(core):
        pages = kv.table.pages[0, : kv.table.num_held[0]].tolist()
        seen.append((pages, int(state.slot[0]), int(carry.row[0]), counted.whole_rows))

    def turn_back(core):
        look(core)
        core.reload("r1")

    script = {
        6: look,
        7: leave("r1"),
        12: lambda core: core.submit(second[0]),
        16: turn_back,
        20: look,
    }
    found = play(core, [first], script)
    assert found["r1"].ids == first[1]
    assert found["r2"].ids == second[1]
    before, away, after = seen
    assert away == ([], 0, 0, 2)  # the row of each was written whole when it first decoded
    assert before[0] != after[0][: len(before[0])]
    assert (before[1:], after[1:]) == ((1, 1, 1), (2, 2, 3))


def test_what_an_offload_reads_is_given_to_others_only_behind_its_own_entry(opened):
    """With room for one request, the second waits until the copy has been retired."""
    core = opened("engine.in_flight=3", "nodes.ledger.resources.kv.num_pages=5")
    first, second = ask(1), ask(2, new=25)
    found = play(core, [first, second], {6: leave("r1"), 12: back("r1")})
    assert [found[r.id].ids for r, _ in (first, second)] == [first[1], second[1]]
    assert counts(core)["offloads"] == counts(core)["reloads"] == 1


def test_a_reload_takes_everything_or_nothing(opened):
    core = opened("engine.in_flight=1", "nodes.ledger.resources.kv.num_pages=5")
    first, second = ask(1), ask(2, new=25)
    held = []

    def back_too_early(core):
        core.reload("r1")

    def look(core):
        state = resource(core, "state")
        held.append(state.ids.num_ids - state.ids.num_free - state.ids.num_cooling)
        held.append(counts(core)["reloads"])

    found = play(core, [first, second], {6: leave("r1"), 14: back_too_early, 18: look})
    assert held == [1, 0]
    assert [found[r.id].ids for r, _ in (first, second)] == [first[1], second[1]]
    assert counts(core)["reloads"] == 1


@pytest.mark.parametrize("when", [8, 9, 10, 12])
def test_an_abort_of_a_request_that_is_leaving_or_away_ends_it(opened, when):
    core = opened("engine.in_flight=2")
    asked = [ask(1), ask(2)]
    script = {8: leave("r1"), when: lambda core: (core.offload("r1"), core.abort("r1"))}
    found = play(core, asked, script)
    assert found["r1"].finish_reason == "abort"
    assert found["r1"].ids == asked[0][1][: len(found["r1"].ids)]
    assert found["r2"].ids == asked[1][1]


def test_an_abort_right_after_the_reload_ends_it(opened):
    core = opened("engine.in_flight=3")
    asked = [ask(1), ask(2)]
    script = {8: leave("r1"), 14: back("r1"), 15: lambda core: core.abort("r1")}
    found = play(core, asked, script)
    assert found["r1"].finish_reason == "abort"
    assert found["r2"].ids == asked[1][1]


def test_a_request_that_ends_while_it_is_left_out_is_not_offloaded(opened):
    core = opened("engine.in_flight=3")
    request, tokens = ask(1, new=6)
    found = play(core, [(request, tokens)], {6: leave("r1"), 7: back("r1")})
    assert found["r1"].ids == tokens
    assert counts(core)["offloads"] == 0


def test_a_stop_from_outside_reaches_a_request_that_is_away(opened):
    core = opened("engine.in_flight=1")
    core.submit(ask(1)[0])
    for _ in range(9):
        core.turn()
    core.offload("r1")
    while core.turn():
        pass
    core.stop("r1", 3)
    events = [e for e in core.drain() if isinstance(e, FinishEvent)]
    assert [(e.reason, e.generated) for e in events] == [("stop", 3)]


def test_offload_and_reload_of_requests_that_do_not_run_do_nothing(opened):
    core = opened()
    asked = [ask(1)]
    assert core.offload("nobody") is None
    core.reload("nobody")
    found = play(core, asked, {3: back("r1"), 5: leave("r1"), 6: leave("r1"), 9: back("r1")})
    assert found["r1"].ids == asked[0][1]
    assert counts(core)["offloads"] == 1


def test_a_reload_asked_while_the_request_is_leaving_follows_its_offload(opened):
    core = opened("engine.in_flight=3")
    asked = [ask(1)]
    script = {8: lambda core: (core.offload("r1"), core.reload("r1"))}
    assert play(core, asked, script)["r1"].ids == asked[0][1]
    assert counts(core)["offloads"] == counts(core)["reloads"] == 1


def test_a_request_comes_and_goes_many_times(opened):
    core = opened("engine.in_flight=2")
    asked = [ask(salt, new=60) for salt in (1, 2)]
    script = {turn: (leave if turn % 8 else back)("r1") for turn in range(4, 81, 4)}
    found = play(core, asked, script)
    assert [found[r.id].ids for r, _ in asked] == [tokens for _, tokens in asked]
    assert counts(core)["offloads"] >= 4


class Pinned(Resource):
    """Holds one thing of every request, and cannot copy it out."""

    kind = "pinned"
    key = "pin"

    @classmethod
    def build(cls, spec, env):
        return cls()

    def plan(self, step, lease, upstream):
        return Plan()

    def held(self):
        return {"things": (1, 1)}


def test_a_resource_that_only_the_device_can_hold_is_refused(opened):
    core = opened(mode="eager")
    core.nodes["ledger"].resources["pin"] = Pinned()
    asked = [ask(1)]
    refusals = []
    found = play(core, asked, {5: lambda core: refusals.append(core.offload("r1"))})
    (refusal,) = refusals
    assert (refusal.code, refusal.owner) == ("not-evictable", "pin")
    assert refusal.got == "a resource of kind pinned that only the device can hold"
    assert found["r1"].ids == asked[0][1]
    assert counts(core)["offloads"] == 0


@pytest.mark.parametrize("kind", [KVResource, StateResource, CarryResource])
def test_each_part_of_a_request_that_is_not_copied_changes_a_token(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(kind, "pieces", lambda self, handle: [])
    core, _ = open_ledger(tmp_path, (*SETS, "engine.graphs=off"))
    poison(core)
    asked = [ask(salt) for salt in (1, 2, 3)]
    script = {7: leave("r1"), 8: leave("r2"), 20: back("r1"), 21: back("r2")}
    found = play(core, asked, script)
    right = [tokens for _, tokens in asked]
    assert [found[r.id].ids for r, _ in asked] != right


def test_the_fuzzer_finds_a_request_whose_row_of_the_tables_outlives_its_offload(
    tmp_path, monkeypatch
):
    """The row still names the pages that the request has given up."""
    close = NodeRuntime.close

    def closed(self, handle, fence):
        close(self, handle, fence)
        if self.planner is not None:
            self.planner.slots.give_up(handle)

    monkeypatch.setattr(ResidentPlanner, "release", lambda self, handle: None)
    monkeypatch.setattr(NodeRuntime, "close", closed)
    monkeypatch.setattr(fuzz, "shrink", lambda failure, subject: failure)
    with pytest.raises(FuzzFailure, match=r"tokens|cells of device tables differ"):
        fuzz_ledger(range(0, 400), tmp_path)


def test_the_copies_of_one_request_hold_every_byte_of_its_pages_slot_and_row(opened):
    core = opened("engine.in_flight=0", mode="eager")
    request, tokens = ask(1, prompt=10)
    play(core, [(request, tokens)], {6: leave("r1")})
    page = 2 * 8 * 4 * torch.float32.itemsize
    assert counts(core)["num_bytes"] == 2 * page + 8 + 2 * 8
    core.reload("r1")
    while core.turn():
        pass
    assert results(core)["r1"].ids == tokens
