"""Keys, places found by key, and the boundary that all resources agree on."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mstar_core.resources.fence import Fences, IdPool
from mstar_core.resources.kv.table import PageTable
from mstar_core.resources.shared import Kept, Prefix, agreed
from mstar_core.resources.state.snapshots import Snapshots
from mstar_core.resources.table import RequestTable


def keys(ids, grain=4, root=b"root", pieces=None):
    """The prefix of ``ids``, told in ``pieces`` of that many tokens."""
    prefix, ids = Prefix(root, grain), np.asarray(ids)
    for begin in range(0, len(ids), pieces or len(ids)):
        prefix.extend([ids[begin : begin + (pieces or len(ids))]])
    return prefix


def test_the_agreed_boundary_is_where_every_resource_has_something():
    """GDN-11: blocks of 256; attention has two, states are kept behind the first and the fourth."""
    attention, states = range(256, 513, 256), [256, 1024]
    assert agreed([attention, states]) == 256
    assert agreed([states, attention]) == 256
    assert agreed([range(256, 1025, 256), states]) == 1024
    assert agreed([attention, [1024]]) == 0
    assert agreed([attention, []]) == 0
    assert agreed([]) == 0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 9))
def test_keys_do_not_depend_on_how_the_tokens_arrive(ids, pieces):
    whole, cut = keys(ids), keys(ids, pieces=pieces)
    assert whole.length == cut.length == len(ids)
    for end in range(4, len(ids) + 1, 4):
        assert whole.key(end) == cut.key(end)


def test_a_key_stands_for_every_token_before_it_and_for_the_root():
    one, other = keys([1, 2, 3, 4, 5, 6, 7, 8]), keys([9, 2, 3, 4, 5, 6, 7, 8])
    assert one.key(4) != other.key(4)
    assert one.key(8) != other.key(8)
    assert one.key(4) != one.key(8)
    assert keys([1, 2, 3, 4]).key(4) == one.key(4)
    assert keys([1, 2, 3, 4], root=b"other").key(4) != one.key(4)


@pytest.fixture
def fences():
    return Fences()


def test_what_is_kept_is_free_and_is_taken_last_the_longest_kept_first(fences):
    kept = Kept(IdPool(6, fences))
    taken = kept.take(5).tolist()
    assert all(kept.put(bytes([place]), place) for place in taken[:3])
    kept.give_back([taken[1]], -1)
    kept.give_back([taken[0], taken[2], taken[3], taken[4]], -1)
    assert kept.pool.num_free == 5
    assert kept.take(2).tolist() == [taken[4], taken[3]]
    assert kept.num_evicted == 0
    assert kept.take(1).tolist() == [taken[1]]
    assert (len(kept), kept.num_evicted) == (2, 1)
    assert kept.find(bytes([taken[1]])) is None
    assert kept.find(bytes([taken[0]])) == taken[0]


def test_the_second_place_of_a_key_is_not_kept(fences):
    kept = Kept(IdPool(4, fences))
    first, second = kept.take(2).tolist()
    assert kept.put(b"key", first)
    assert not kept.put(b"key", second)
    assert kept.find(b"key") == first
    assert second not in kept


def test_a_place_that_is_revived_while_it_cools_is_not_freed_by_its_old_fence(fences):
    pool = IdPool(3, fences)
    (place, _) = pool.take(2).tolist()
    pool.give_back([place], 5)
    assert (pool.num_free, pool.num_cooling) == (0, 1)
    pool.revive([place])
    assert (pool.num_free, pool.num_cooling) == (0, 0)
    pool.give_back([place], 9)
    fences.retire(5)
    assert (pool.num_free, pool.num_cooling) == (0, 1)
    fences.retire(9)
    assert pool.take(1).tolist() == [place]


def test_of_places_given_back_together_the_revived_one_stays_held(fences):
    pool = IdPool(4, fences)
    first, second, third = pool.take(3).tolist()
    pool.give_back([first, second, third], 5)
    pool.revive([second])
    fences.retire(5)
    assert (pool.num_free, pool.num_cooling) == (2, 0)
    assert pool.take(2).tolist() == [third, first]
    with pytest.raises(IndexError, match="twice"):
        pool.give_back([second, second], 5)


def page_table(fences, num_pages=8):
    return PageTable(RequestTable(6), fences, num_pages + 1, 4, num_pages)


def run(table, handle, tokens):
    """As steps do: room for ``tokens`` more, and their length."""
    handles_B, spans_B = np.array([handle]), np.array([tokens])
    table.grow(handles_B, table.missing(handles_B, spans_B))
    table.length[handle] += tokens


def test_an_adopted_page_has_two_owners_and_stays_until_both_are_gone(fences):
    table, prefix = page_table(fences), keys(range(10))
    run(table, 1, 10)
    table.publish(1, prefix, 10)
    assert len(table.kept) == 2
    shared = table.pages[1, :2].astype(np.int64).copy()
    table.num_life[2] = 3
    table.adopt(2, shared)
    assert (table.length[2], table.num_held[2]) == (8, 2)
    run(table, 2, 2)
    assert table.pages[2, 2] != table.pages[1, 2]
    table.release(1, 7)
    assert table.pool.num_cooling == 1  # the part-filled page
    table.release(2, 3)
    assert (table.pool.num_free, table.pool.num_cooling) == (4, 4)
    fences.retire(3)
    assert table.pool.num_cooling == 3  # the shared ones cool behind the newer reader
    fences.retire(7)
    assert table.pool.num_free == 8


def test_pages_that_were_taken_at_admission_follow_the_adopted_ones(fences):
    table, prefix = page_table(fences), keys(range(8))
    run(table, 1, 8)
    table.publish(1, prefix, 8)
    shared = table.pages[1, :2].astype(np.int64).copy()
    table.num_life[2] = 3
    table.grow(np.array([2]), np.array([2]))
    own = table.pages[2, :2].tolist()
    table.adopt(2, shared)
    assert table.pages[2, :3].tolist() == [*shared.tolist(), own[0]]
    assert table.pool.num_free == 8 - 3
    table.release(1, -1)
    table.release(2, -1)
    assert table.pool.num_free == 8


def test_the_end_of_a_kept_stream_is_taken_before_its_beginning(fences):
    table, prefix = page_table(fences, 4), keys(range(16))
    run(table, 1, 16)
    table.publish(1, prefix, 16)
    first = int(table.pages[1, 0])
    table.release(1, -1)
    run(table, 2, 12)
    assert table.kept.find(prefix.key(4)) == first
    assert table.kept.find(prefix.key(8)) is None


@pytest.fixture
def snapshots(fences):
    slots = {"conv": torch.zeros(1, 4, 2), "ssm": torch.zeros(1, 4, 3)}
    blocks = {name: torch.full((1, 3, *b.shape[2:]), torch.nan) for name, b in slots.items()}
    return Snapshots.over(4, blocks, slots, fences)


def kept_at(snapshots, handle, length, slot, number):
    copy = snapshots.keep(np.array([handle]), np.array([length]), np.array([slot]), number)
    if copy is not None:
        copy()
    return copy is not None


def test_a_snapshot_copies_every_block_and_is_found_once_it_is_published(snapshots):
    prefix = keys(range(8))
    snapshots.slots["conv"][0, 2], snapshots.slots["ssm"][0, 2] = 5.0, 6.0
    assert kept_at(snapshots, 1, 4, 2, number=0)
    assert snapshots.kept.find(prefix.key(4)) is None
    snapshots.publish(1, prefix, 4)
    snapshots.pin(3, prefix.key(4))
    snapshots.restore(np.array([3]), np.array([1]), 1)()
    assert snapshots.slots["conv"][0, 1].tolist() == [5.0] * 2
    assert snapshots.slots["ssm"][0, 1].tolist() == [6.0] * 3
    assert snapshots.source(3) is None


def test_a_snapshot_past_what_was_kept_goes_back(snapshots, fences):
    prefix = keys(range(16))
    assert kept_at(snapshots, 1, 4, 2, number=0)
    assert kept_at(snapshots, 1, 8, 2, number=1)
    snapshots.publish(1, prefix, 7)
    snapshots.close(1, 1)
    assert snapshots.kept.find(prefix.key(4)) is not None
    assert snapshots.kept.find(prefix.key(8)) is None
    assert snapshots.kept.pool.num_cooling == 2
    fences.retire(1)
    assert snapshots.kept.pool.num_free == 2


def test_a_pinned_snapshot_is_taken_by_nobody_until_its_copy_is_read(snapshots, fences):
    prefix = keys(range(16))
    kept_at(snapshots, 1, 4, 2, number=0)
    fences.retire(0)
    snapshots.publish(1, prefix, 4)
    snapshots.pin(2, prefix.key(4))
    snapshots.pin(3, prefix.key(4))
    assert kept_at(snapshots, 1, 8, 2, number=1)
    assert not kept_at(snapshots, 1, 12, 2, number=2)
    assert snapshots.num_skipped == 1
    snapshots.restore(np.array([2]), np.array([1]), 3)()
    snapshots.close(3, 3)
    assert snapshots.kept.pool.num_cooling == 1
    fences.retire(3)
    assert kept_at(snapshots, 4, 4, 2, number=4)
    assert snapshots.kept.find(prefix.key(4)) is None
