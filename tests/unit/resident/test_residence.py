"""Resident buckets of an engine: what is decided at warmup, and what a step of one does."""

import random

import attrs
import numpy as np
import pytest
import torch

from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.residence import RowRing, resident_arrays
from mstar_core.step import Bucket, Shortage
from mstar_core.testing.cores import open_ledger, results
from mstar_core.testing.ledger import continuation, ledger_request

SETS = (
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=64",
    "engine.in_flight=0",
    "engine.graphs=recorder",
    "engine.capture.rows=[1,2]",
    "engine.capture.tokens=[16]",
    "nodes.ledger.resources.kv.page_tokens=8",
)


def request(name, salt, prompt=5, new=20):
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=name), continuation(ids, salt, new)


def opened(folder, *sets, lag=None) -> EngineCore:
    return open_ledger(folder, (*SETS, *sets), lag)[0]


def planner(core):
    return core.nodes["ledger"].tables


def turns(core, count):
    for _ in range(count):
        core.turn()


def finish(core):
    while core.turn():
        pass
    core.check_conserved()
    return results(core)


def held_slots(core):
    slots = planner(core).slots
    return slots.num_rows - 2 - slots.num_free


# At warmup


def test_the_store_is_sized_by_the_widest_resident_capture(tmp_path):
    core = opened(tmp_path, "engine.capture.rows=[1,4]")
    assert planner(core).slots.num_rows == 2 * 4 + 2
    assert core.nodes["ledger"].resident_walks == {"decode"}
    buckets = core.lifecycle.buckets.captured.values()
    assert {c.bucket.walk: c.resident for c in buckets} == {"prefill": False, "decode": True}


def test_a_row_has_cells_for_what_each_resource_mirrors(tmp_path):
    layout = planner(opened(tmp_path)).layout
    narrow = [place for place, _ in layout.narrow]
    assert set(narrow) == {("carry", "row"), ("kv", "length"), ("state", "slot")}
    assert [place for place, _ in layout.spans] == [("kv", "pages")]
    assert layout.num_cells == 3 + 64 // 8


def test_a_capture_leaves_row_0_zero_and_nobody_seated(tmp_path):
    core = opened(tmp_path)
    assert not planner(core).store_RC[:-1].any()
    assert held_slots(core) == 0
    assert planner(core).counts.steps == 0


def test_the_block_of_a_bucket_holds_row_numbers_and_cells_and_nothing_else(tmp_path):
    core = opened(tmp_path)
    bucket = Bucket(walk="decode", rows=2, tokens=2, kind="decode")
    arrays = resident_arrays(planner(core), bucket, None)
    assert {name: a.shape for (_, name), a in arrays.items()} == {
        "slots_B": (2,),
        "count_1": (1,),
        "index_K": (2 * 4,),
        "value_K": (2 * 4,),
    }
    assert not any(a.any() for a in arrays.values())
    assert set(core.lifecycle.buckets.of(bucket).block.layout.places) == set(arrays)


def test_the_report_says_which_walks_are_resident(tmp_path):
    _, report = open_ledger(tmp_path, SETS)
    (node,) = report.nodes
    assert node.resident_walks == ("decode",)
    assert node.resident_refusals == ()
    assert report.memory["ledger.resident"] >= 8 * 6 * 11


def test_the_report_says_how_many_rows_of_how_many_cells_there_are(tmp_path):
    _, report = open_ledger(tmp_path, SETS)
    (node,) = report.nodes
    assert (node.resident_rows, node.resident_cells) == (4, 11)
    assert "  resident  decode: 4 rows of 11 cells, 0.0 MiB" in list(report.lines())


def test_the_report_of_a_node_without_tables_has_none(tmp_path):
    _, report = open_ledger(tmp_path, (*SETS, "engine.resident=off"))
    (node,) = report.nodes
    assert (node.resident_rows, node.resident_cells) == (0, 0)
    because = "  resident  none: planned on the host, because of config ({})"
    assert because.format("engine.resident: off") in report.lines()


def test_the_report_of_an_engine_without_graphs_says_so(tmp_path):
    _, report = open_ledger(tmp_path, ("engine.graphs=off",))
    because = "  resident  none: planned on the host, because of config ({})"
    assert because.format("no graphs: every step runs eagerly") in report.lines()


# A step


def test_a_decode_of_three_rows_in_a_bucket_of_two_runs_eagerly_and_the_next_is_resident(tmp_path):
    """Rows move on the host while more run than the bucket holds, and come back by their cells."""
    core = opened(tmp_path)
    given = [request(f"r{i}", i + 1, new=30) for i in range(2)]
    late, late_tokens = request("late", 9, new=4)
    for one, _ in given:
        core.submit(one)
    turns(core, 4)
    whole = planner(core).counts.whole_rows
    assert (whole, core.stats()["eager_by_walk"].get("decode", 0)) == (2, 0)
    core.submit(late)
    turns(core, 5)
    assert core.stats()["eager_by_walk"]["decode"] == 3
    found = finish(core)
    assert [found[f"r{i}"].ids for i in range(2)] == [tokens for _, tokens in given]
    assert found["late"].ids == late_tokens
    assert planner(core).counts.whole_rows == whole


def test_a_refused_step_leaves_nothing(tmp_path, monkeypatch):
    core = opened(tmp_path)
    one, tokens = request("a", 1)
    core.submit(one)
    turns(core, 3)
    carry = core.nodes["ledger"].resources["carry"]
    step, rows = core.scheduler.next(core._running)
    before = attrs.asdict(planner(core).counts), planner(core).store_RC.clone(), held_slots(core)
    with monkeypatch.context() as patch:
        short = Shortage(key="carry", need=1, free=0)
        patch.setattr(type(carry), "room", lambda self, part: short)
        assert core.lifecycle.launch(step, rows) is short
    after = attrs.asdict(planner(core).counts), planner(core).store_RC, held_slots(core)
    assert (after[0], after[2]) == (before[0], before[2])
    assert torch.equal(after[1], before[1])
    assert finish(core)["a"].ids == tokens


def test_a_request_that_is_over_gives_its_row_up_at_once(tmp_path):
    core = opened(tmp_path, "engine.in_flight=2", lag=Lag())
    for i in range(2):
        core.submit(request(f"r{i}", i + 1, new=30)[0])
    turns(core, 4)
    assert held_slots(core) == 2
    core.abort("r0")
    core.turn()
    assert held_slots(core) == 1
    assert core.fences.num_cooling > 0
    finish(core)
    assert held_slots(core) == 0
    assert planner(core).counts.released == 2


@pytest.mark.parametrize("in_flight", [0, 3])
def test_an_aborted_request_and_the_next_owner_of_its_handle_do_not_meet(tmp_path, in_flight):
    """Aborts with recycled handles, on a device that runs as late as it can."""
    core = opened(tmp_path, f"engine.in_flight={in_flight}", lag=Lag())
    for n in range(1, 16):
        core.submit(request(f"gone{n}", n, prompt=3 + n, new=40)[0])
        turns(core, 3 + n % 4)
        core.abort(f"gone{n}")
        kept, tokens = request(f"kept{n}", 50 + n, prompt=2 + n % 9, new=6)
        core.submit(kept)
        assert finish(core)[f"kept{n}"].ids == tokens
    assert held_slots(core) == 0


@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
@pytest.mark.parametrize("lag", [Lag(), Lag(seed=2)], ids=["latest", "seeded"])
def test_more_live_requests_than_slots_give_their_own_tokens(tmp_path, in_flight, lag):
    """Eight requests on a store for two, two rows a step, in an order that changes every turn."""
    sets = ("engine.token_budget=2", "engine.capture.tokens=[2]", "engine.min_chunk=1")
    sets = (*sets, f"engine.in_flight={in_flight}")
    core, draw = opened(tmp_path, *sets, "engine.capture.rows=[1,2]", lag=lag), random.Random(4)
    given = {f"r{i}": request(f"r{i}", i + 1, prompt=4 + i, new=40) for i in range(8)}
    for one, _ in given.values():
        core.submit(one)
    turn = 0
    while core.turn():
        draw.shuffle(core._running)
        turn += 1
        if turn in (60, 90):
            core.abort(f"r{turn // 30}")
    found = results(core)
    core.check_conserved()
    for name, (_, tokens) in given.items():
        ids = found[name].ids
        assert ids == tokens[: len(ids)], name
        assert len(ids) == 40 or name in ("r2", "r3")
    counts = planner(core).counts
    assert counts.displaced > 30
    assert core.stats()["eager_by_walk"].get("decode", 0) == 0
    assert not planner(core).store_RC[0].any()


def test_a_steady_step_stages_nothing(tmp_path):
    core = opened(tmp_path)
    one, tokens = request("a", 1, prompt=9, new=7)
    core.submit(one)
    found = finish(core)["a"]
    assert found.ids == tokens
    counts = planner(core).counts
    assert (counts.steps, counts.whole_row_steps, counts.crossing_steps) == (6, 1, 0)
    assert counts.untouched_steps == 5


def test_a_replay_without_a_copy_changes_nothing_but_lengths(tmp_path):
    """What a graph has scattered is consumed: the block of the bucket counts no cell any more."""
    core = opened(tmp_path)
    core.submit(request("a", 1, prompt=6, new=20)[0])
    bucket = Bucket(walk="decode", rows=1, tokens=1, kind="decode")
    captured = core.lifecycle.buckets.of(bucket)
    while not planner(core).counts.crossing_steps:
        core.turn()
    views = captured.block.views
    assert views["resident", "index_K"].any()
    assert views["resident", "count_1"].item() == 0
    store_RC = planner(core).store_RC
    before = store_RC[:-1].clone()
    captured.graph.replay()
    moved = store_RC[:-1] - before
    slot = int(views["resident", "slots_B"][0])
    advance_N = planner(core).layout.advance({"kv": 1, "carry": 1, "state": 1, "rows": 1})
    assert moved[slot, : len(advance_N)].tolist() == advance_N.tolist()
    moved[slot, : len(advance_N)] = 0
    assert not moved.any()


def test_row_0_of_the_store_stays_zero_in_an_engine(tmp_path):
    core = opened(tmp_path, "engine.capture.rows=[4]")
    given = [request(f"r{i}", i + 1, prompt=3 + i, new=9) for i in range(3)]
    for one, _ in given:
        core.submit(one)
    found = finish(core)
    assert [found[f"r{i}"].ids for i in range(3)] == [tokens for _, tokens in given]
    store_RC = planner(core).store_RC
    assert not store_RC[0].any()
    assert store_RC[-1].any()


# Whole rows on their way


def test_a_flush_of_the_largest_step_stages_without_growing(tmp_path):
    """Every row of the widest bucket whole, and every page of each in use."""
    core = opened(tmp_path, "engine.capture.rows=[2]")
    ring, tables = core.lifecycle.rows["ledger"], planner(core)
    blocks = [block.data_ptr() for block in ring._ring]
    width = tables.layout.num_cells
    assert ring.num_cells == 2 * width
    values = np.arange(1, 2 * width + 1)
    ring.send([(width, values)], tables.store_RC)
    assert tables.store_RC[1:3].flatten().tolist() == values.tolist()
    assert [block.data_ptr() for block in ring._ring] == blocks
    assert {len(block) for block in ring._ring} == {2 * width}


def test_runs_arrive_in_order_and_a_block_is_used_again_only_depth_flushes_later():
    """On a device that runs nothing until it is waited for."""
    device = CpuDevice(Lag())
    store_RC = torch.zeros(4, 3, dtype=torch.int64)
    ring = RowRing(device, 2, 3)
    ring.send([(3, np.array([1, 2])), (5, np.array([3]))], store_RC)
    first = device.record()
    ring.send([(3, np.array([7]))], store_RC)
    assert not store_RC.any()
    first.wait(1.0)
    assert store_RC.flatten().tolist() == [0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0]
    ring.send([(9, np.array([5, 5, 5]))], store_RC)
    device.record().wait(1.0)
    assert store_RC[1].tolist() == [7, 2, 3]
    assert store_RC[3].tolist() == [5, 5, 5]


def test_there_is_a_block_for_each_step_in_flight_and_one(tmp_path):
    core = opened(tmp_path, "engine.in_flight=3")
    assert len(core.lifecycle.rows["ledger"]._ring) == 4


def test_pages_that_steady_steps_took_are_known_to_the_next_plan(tmp_path):
    """Steady steps send new pages by themselves; a plan behind them finds nothing to send."""
    core = opened(tmp_path)
    given = [request(f"r{i}", i + 1, prompt=4, new=40) for i in range(2)]
    for one, _ in given:
        core.submit(one)
    while core.lifecycle.counts.steady < 12:
        core.turn()
    tables = planner(core)
    slots_B = tables.slots.of(np.arange(core.table.num_handles))
    handles_B = np.flatnonzero(slots_B)
    _, held_BS = tables.expected(slots_B[handles_B])
    assert held_BS.tolist() == tables.layout.held(handles_B).tolist()
    whole = tables.counts.whole_rows
    found = finish(core)
    assert [found[f"r{i}"].ids for i in range(2)] == [tokens for _, tokens in given]
    assert tables.counts.whole_rows == whole == 2
