"""The planner: what a resident step sends, and what the store holds behind it."""

import numpy as np
import torch

from mstar_core.config.sampling import SamplingSettings
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.position import PositionResource
from mstar_core.resources.sampler import SamplerResource, SuppressRule
from mstar_core.testing.resident_tables import Tables, differences
from mstar_core.testing.world import World, opening_of

KV = {"num_layers": 1, "num_kv_heads": 1, "head_dim": 4}
HEADS = {"num_heads": 1, "num_kv_heads": 1, "head_dim": 4}


def one_pool(width=2, pages=None):
    """A pool of pages of 8 tokens and positions: cells length, length, offset, then pages."""
    world = World(max_rows=16, max_context=64)
    world.build(KVResource, "kv", KV, {"page_tokens": 8, "num_pages": pages})
    world.build(PositionResource, "position", {"rotary_dim": 4})
    return Tables.over(world, width)


def two_pools(width=2):
    """A pool that decode appends to, and one of wider pages that it only reads."""
    world = World(max_rows=16, max_context=64)
    world.build(KVResource, "kv", KV, {"page_tokens": 8})
    world.build(KVResource, "cross_kv", KV | {"max_tokens": 32}, {"page_tokens": 16})
    world.build(AttentionResource, "attention", HEADS, depends_on={"kv": "kv"})
    world.build(AttentionResource, "cross", HEADS, depends_on={"kv": "cross_kv"})
    return Tables.over(world, width, reads=("cross_kv",))


def opened(tables, *prompts, offset=0):
    """Requests behind prompts of these many tokens."""
    found = []
    for tokens in prompts:
        settings = {"position": {"offset": offset}}
        keys = tuple(tables.world.resources)
        found.append(tables.world.open(opening_of(48, keys=keys, settings=settings)))
        tables.prompt(found[-1], tokens)
    return found


def cells_of(tables, writes):
    """Staged cells as (request row of the step, cell of the row, value)."""
    width = tables.planner.layout.num_cells
    rows = {int(slot): row for row, slot in enumerate(writes.slots_B)}
    return [
        (rows[int(at) // width], int(at) % width, int(value))
        for at, value in zip(writes.index_K, writes.value_K, strict=True)
    ]


def runs_of(tables, writes):
    """Runs as (row of the store, first cell, values up to the last that is not 0)."""
    width = tables.planner.layout.num_cells
    return [
        (at // width, at % width, np.trim_zeros(values, "b").tolist()) for at, values in writes.runs
    ]


def pages(tables, handle, key="kv"):
    table = tables.world.resources[key].table
    return table.pages[handle, : table.num_held[handle]].tolist()


def right(tables, *handles):
    assert tables.wrong_rows(handles) == []


# What is sent


def test_the_first_decode_step_behind_a_prompt_is_written_whole():
    tables = one_pool()
    (a,) = opened(tables, 10, offset=-3)
    seen = tables.step([a])
    assert seen.writes.num_whole == 1
    assert len(seen.writes.index_K) == 0
    (slot,) = seen.writes.slots_B
    assert runs_of(tables, seen.writes) == [(slot, 0, [10, 10, -3, *pages(tables, a)])]
    right(tables, a)


def test_a_steady_step_sends_nothing():
    tables = one_pool()
    a, b = opened(tables, 10, 3)
    tables.step([a, b])
    for _ in range(4):
        seen = tables.step([a, b])
        assert len(seen.writes.index_K) == 0
        assert list(seen.writes.runs) == []
        right(tables, a, b)
    assert tables.planner.counts.untouched_steps == 4


def test_a_row_that_crosses_into_a_page_sends_that_page_alone():
    tables = one_pool()
    a, b = opened(tables, 7, 3)
    tables.step([a, b])
    seen = tables.step([a, b])
    assert cells_of(tables, seen.writes) == [(0, 4, pages(tables, a)[1])]
    assert list(seen.writes.runs) == []
    assert (seen.writes.num_crossing, seen.writes.num_whole) == (1, 0)
    right(tables, a, b)


def test_a_host_step_between_two_resident_steps_sends_the_lengths_that_it_moved():
    """Three rows are too many for the bucket of two, so one step is planned on the host."""
    tables = one_pool()
    a, b, c = opened(tables, 9, 2, 2)
    tables.step([a, b])
    tables.on_the_host([a, c])
    seen = tables.step([a, b])
    assert cells_of(tables, seen.writes) == [(0, 0, 11), (0, 1, 11)]
    assert list(seen.writes.runs) == []
    right(tables, a, b)


def test_a_host_step_that_crossed_sends_the_lengths_and_the_page():
    tables = one_pool()
    (a,) = opened(tables, 7)
    tables.step([a])
    tables.on_the_host([a])
    seen = tables.step([a])
    assert cells_of(tables, seen.writes) == [(0, 0, 9), (0, 1, 9), (0, 4, pages(tables, a)[1])]
    assert seen.writes.num_whole == 0
    right(tables, a)


def test_host_steps_that_crossed_twice_have_the_row_written_whole():
    tables = one_pool()
    (a,) = opened(tables, 7)
    tables.step([a])
    for _ in range(9):
        tables.on_the_host([a])
    seen = tables.step([a])
    assert seen.writes.num_whole == 1
    assert len(seen.writes.index_K) == 0
    right(tables, a)


def test_a_row_that_holds_fewer_pages_than_its_copy_is_written_whole():
    tables = one_pool()
    (a,) = opened(tables, 20)
    tables.step([a])
    kv = tables.world.resources["kv"].table
    kv.release(a, 0)
    kv.num_promised[a] = 6
    tables.world.resources["position"].length[a] = 0
    tables.prompt(a, 5)
    seen = tables.step([a])
    assert seen.writes.num_whole == 1
    right(tables, a)


def test_a_constant_that_changed_is_sent_as_a_cell():
    tables = one_pool()
    (a,) = opened(tables, 9)
    tables.step([a])
    tables.world.resources["position"].offset[a] = 5
    assert cells_of(tables, tables.step([a]).writes) == [(0, 2, 5)]
    right(tables, a)


def test_pages_taken_for_the_steps_to_come_are_a_cell_each():
    """A steady step: nothing but its pages has changed, which may be several at once."""
    tables = one_pool()
    a, b = opened(tables, 6, 3)
    slots_B = tables.step([a, b]).writes.slots_B
    tables.world.resources["kv"].table.grow(np.array([a, b]), np.array([3, 1]))
    tables.planner.steady(slots_B)
    index_K, value_K = tables.planner.crossed(np.array([a, b]), slots_B)
    width = tables.planner.layout.num_cells
    places = [divmod(int(at), width) for at in index_K]
    one, two = slots_B.tolist()
    assert places == [(one, 4), (one, 5), (one, 6), (two, 4)]
    assert value_K.tolist() == [*pages(tables, a)[1:], *pages(tables, b)[1:]]
    counts = tables.planner.counts
    assert (counts.steps, counts.untouched_steps, counts.crossing_steps) == (2, 0, 1)
    _, held_BS = tables.planner.expected(slots_B)
    assert held_BS.tolist() == [[4], [2]]


# Displacement


def test_a_displaced_row_is_written_whole_with_its_lengths():
    tables = one_pool(width=1)
    a, b, c = opened(tables, 9, 3, 4)
    tables.step([a])
    tables.step([b])
    tables.step([c])
    assert tables.planner.counts.displaced == 1
    seen = tables.step([a])
    assert seen.writes.num_whole == 1
    assert runs_of(tables, seen.writes)[0][2] == [10, 10, 0, *pages(tables, a)]
    right(tables, a)


def test_a_displaced_row_that_moved_on_the_host_is_written_as_it_is_now():
    tables = one_pool(width=1)
    a, b, c = opened(tables, 6, 3, 4)
    for handle in (a, b, c):
        tables.step([handle])
    for _ in range(5):
        tables.on_the_host([a])
    tables.step([a])
    right(tables, a)
    assert len(pages(tables, a)) == 2


def test_a_recycled_handle_is_written_whole():
    tables = one_pool(width=1)
    (a,) = opened(tables, 20)
    tables.step([a])
    tables.close(a)
    tables.world.retire()
    (again,) = opened(tables, 20)
    assert again == a
    seen = tables.step([again])
    assert seen.writes.num_whole == 1
    right(tables, again)
    assert tables.planner.counts.displaced == 0


def test_a_row_that_another_held_keeps_nothing_of_it_that_can_be_read():
    tables = one_pool(width=1)
    a, b = opened(tables, 40, 3)
    tables.step([a])
    tables.close(a)
    seen = tables.step([b])
    right(tables, b)
    assert differences(seen.host["kv"], seen.resident["kv"]) == []


def test_a_released_request_counts_once():
    tables = one_pool()
    a, b = opened(tables, 3, 3)
    tables.step([a])
    tables.planner.release(a)
    tables.planner.release(a)
    tables.planner.release(b)
    assert tables.planner.counts.released == 1


# Two pools


def test_two_pools_bind_rows_of_their_own():
    tables = two_pools()
    layout = tables.planner.layout
    assert layout.start["kv", "pages"] == 2
    assert layout.start["cross_kv", "pages"] == 2 + 8
    assert layout.num_cells == 2 + 8 + 2
    (a,) = opened(tables, 9)
    tables.step([a])
    row = tables.planner.store_RC[tables.planner.slots.of(np.array([a]))[0]].tolist()
    assert row[:2] == [10, 9]
    assert row[2:4] == pages(tables, a)
    assert row[10:11] == pages(tables, a, "cross_kv")


def test_a_read_only_pool_keeps_its_row_and_its_length_is_read_and_never_advanced():
    tables = two_pools()
    (a,) = opened(tables, 9)
    for n in range(12):
        seen = tables.step([a], rows=2)
        for key in ("kv", "cross_kv", "attention", "cross"):
            assert differences(seen.host[key], seen.resident[key]) == [], key
        assert seen.resident["cross_kv"].kv_lens_B.tolist() == [9, 0]
        assert seen.resident["cross_kv"].write_T.tolist() == [0, 0]
        assert seen.resident["kv"].kv_lens_B.tolist() == [10 + n, 0]
        right(tables, a)


def test_a_read_only_pool_may_be_full():
    """No place is looked for behind its last token: its table has none."""
    tables = two_pools()
    (a,) = opened(tables, 32)
    seen = tables.step([a], rows=2)
    assert differences(seen.host["cross_kv"], seen.resident["cross_kv"]) == []
    assert seen.resident["cross_kv"].kv_lens_B.tolist() == [32, 0]


def test_a_read_only_pool_that_a_host_step_moved_is_brought_up_to_date():
    tables = two_pools()
    (a,) = opened(tables, 3)
    tables.step([a])
    tables.on_the_host([a], 2, decode=False)
    seen = tables.step([a])
    assert cells_of(tables, seen.writes) == [(0, 0, 6), (0, 1, 5)]
    right(tables, a)


def test_a_rewritten_row_is_one_run_of_all_its_pools():
    tables = two_pools()
    (a,) = opened(tables, 9)
    seen = tables.step([a])
    (slot,) = seen.writes.slots_B
    narrow, held = [9, 9], pages(tables, a)
    row = [*narrow, *held, *[0] * (8 - len(held)), *pages(tables, a, "cross_kv")]
    assert runs_of(tables, seen.writes) == [(slot, 0, row)]


def test_rows_that_lie_side_by_side_are_one_run_in_whatever_order_they_are_asked_for():
    tables = one_pool(width=3)
    a, b, c = opened(tables, 3, 4, 5)
    tables.step([b, a, c])  # takes the first rows
    for handle in (a, b, c):
        tables.planner.release(handle)
    writes = tables.step([a, b, c]).writes
    width = tables.planner.layout.num_cells
    assert sorted(writes.slots_B.tolist()) == [1, 2, 3]
    assert [(at, len(cells)) for at, cells in writes.runs] == [(width, 3 * width)]
    assert writes.num_whole == 3
    right(tables, a, b, c)


def test_rows_with_a_row_between_them_are_two_runs():
    tables = one_pool(width=3)
    a, b, c = opened(tables, 3, 4, 5)
    between = tables.step([a, b, c]).writes.slots_B[1]
    for handle in (a, c):
        tables.planner.release(handle)
    writes = tables.step([a, b, c]).writes
    assert (between, writes.num_whole, len(writes.runs)) == (2, 2, 2)
    right(tables, a, b, c)


# The store


def test_padding_rows_read_row_0_which_stays_zero_and_trash_takes_the_rest():
    tables = one_pool(width=4)
    handles = opened(tables, 7, 3, 9)
    store_RC = tables.planner.store_RC
    for n in range(1, 6):
        before = store_RC.clone()
        rows = handles[: 1 + n % 3]
        seen = tables.step(rows, rows=4)
        assert not store_RC[0].any()
        for key in ("kv", "position"):
            assert differences(seen.host[key], seen.resident[key]) == []
        touched = {*seen.writes.slots_B.tolist(), tables.planner.slots.trash}
        others = [row for row in range(len(store_RC)) if row not in touched]
        assert torch.equal(store_RC[others], before[others])
        assert store_RC[tables.planner.slots.trash, 0] > 0


def test_a_replay_without_a_copy_scatters_nothing():
    tables = one_pool()
    planner = tables.planner
    slots, count = torch.tensor([1, 0]), torch.tensor([1])
    index = torch.tensor([planner.layout.num_cells + 4, 0, 0, 0])
    staged = index, torch.tensor([9, 0, 0, 0]), count
    advance = np.zeros(planner.layout.num_narrow, np.int64)
    planner.begin(slots, *staged, advance_N=advance, variant=0)
    assert planner.store_RC[1, 4] == 9
    assert count.item() == 0
    planner.store_RC[1, 4] = 3
    planner.begin(slots, *staged, advance_N=advance, variant=0)
    assert planner.store_RC[1, 4] == 3


def test_the_copy_of_the_store_advances_as_the_store_does():
    tables = one_pool()
    (a,) = opened(tables, 5)
    for n in range(3):
        tables.step([a])
        slots_B = tables.planner.slots.of(np.array([a]))
        narrow_BN, held_BS = tables.planner.expected(slots_B)
        assert narrow_BN.tolist() == [[6 + n, 6 + n, 0]]
        assert held_BS.tolist() == [[1]]
        assert tables.planner.store_RC[slots_B, :3].tolist() == narrow_BN.tolist()


def test_the_largest_flush_of_small_cells_is_what_a_block_holds():
    """Every row crosses in every pool, and every narrow cell of it differs."""
    tables = two_pools(width=2)
    handles = opened(tables, 15, 15)
    tables.step(handles)
    tables.on_the_host(handles, 2, decode=False)
    writes = tables.step(handles).writes
    assert writes.num_whole == 0
    assert len(writes.index_K) == 2 * tables.planner.cells_per_row()
    right(tables, *handles)


def test_the_store_is_the_rows_times_the_cells_in_8_bytes():
    planner = one_pool(width=3).planner
    assert planner.num_bytes == 8 * (2 * 3 + 2) * planner.layout.num_cells


def test_the_pages_of_a_row_are_capped_by_the_pool():
    assert one_pool().planner.layout.num_cells == 3 + 8
    assert one_pool(pages=3).planner.layout.num_cells == 3 + 3


def test_counts_say_how_rows_reached_the_device():
    tables = one_pool(width=1)
    a, b, c = opened(tables, 7, 3, 3)
    for handle in (a, a, a, b, c):
        tables.step([handle])
    counts = tables.planner.counts
    assert counts.steps == 5
    assert counts.untouched_steps == 1
    assert counts.crossing_steps == 1
    assert counts.whole_row_steps == counts.whole_rows == 3
    assert counts.displaced == 1


# The sampler's settings


def sampled(settings):
    """Requests with settings of their own, on a table that holds two."""
    world = World(max_rows=8, max_context=64)
    world.build(CarryResource, "carry", {"tensors": {"ids": ((), torch.int64, 0)}})
    rules = (SuppressRule([1], name="one"), SuppressRule([2], name="two"))
    world.build(SamplerResource, "sampler", {"vocab_size": 16, "rules": rules})
    tables, handles = Tables.over(world, 1), []
    for number, given in enumerate(settings):
        wanted = {"one": number % 2 == 0, "two": number % 2 == 1}
        handles.append(world.open(opening_of(settings={"sampler": given, "sampler_rules": wanted})))
        tables.prompt(handles[-1], 3)
    return tables, handles


def test_settings_kept_by_carry_row_survive_displacement():
    """Temperature, top-k, top-p, min-p, seed and rules: the row of the store holds none of them."""
    given = [
        SamplingSettings(
            temperature=0.5 + n, top_k=n + 1, top_p=0.9 - n / 10, min_p=n / 10, seed=7 + n
        )
        for n in range(4)
    ]
    tables, handles = sampled(given)
    for _ in range(3):
        for number, handle in enumerate(handles):
            seen = tables.step([handle], variant=1)
            plan, wanted = seen.resident["sampler"], given[number]
            assert differences(seen.host["sampler"], plan) == []
            assert plan.temperature_B.tolist() == [wanted.temperature]
            assert plan.top_k_B.tolist() == [wanted.top_k]
            assert plan.seed_B.tolist() == [wanted.seed]
            assert plan.enabled_BR.tolist() == [[number % 2 == 0, number % 2 == 1]]
    assert tables.planner.counts.displaced == 10


def test_a_row_of_settings_is_the_next_requests_once_its_prompt_has_run():
    tables, (a,) = sampled([SamplingSettings(temperature=2.0, seed=1, top_k=3)])
    row = tables.world.resources["carry"].row[a]
    tables.close(a)
    tables.world.retire()
    b = tables.world.open(opening_of(settings={"sampler": SamplingSettings(seed=5)}))
    assert tables.world.resources["carry"].row[b] == row
    tables.prompt(b, 2)
    plan = tables.step([b], variant=1).resident["sampler"]
    assert plan.temperature_B.tolist() == [0.0]
    assert plan.top_k_B.tolist() == [0]
    assert plan.seed_B.tolist() == [5]


def test_padding_rows_are_greedy_in_a_step_that_draws():
    tables, (a,) = sampled([SamplingSettings(temperature=2.0, seed=1, top_k=3)])
    plan = tables.step([a], rows=2, variant=1).resident["sampler"]
    assert plan.temperature_B.tolist() == [2.0, 0.0]
    assert plan.top_p_B.tolist() == [1.0, 1.0]
    assert plan.enabled_BR.tolist()[1] == [False, False]
    assert plan.carry_write_B.tolist()[1] == 0


def test_a_greedy_step_brings_no_settings_but_its_rules():
    tables, (a,) = sampled([SamplingSettings(temperature=0.0)])
    seen = tables.step([a], rows=2)
    plan = seen.resident["sampler"]
    assert (plan.temperature_B, plan.top_k_B, plan.seed_B, plan.position_B) == (None,) * 4
    assert plan.enabled_BR.tolist() == [[True, False], [False, False]]
    assert plan.generated_B.tolist()[0] == seen.host["sampler"].generated_B[0]
