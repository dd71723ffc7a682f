"""Paged keys and values: pages are promised, taken, shared and given back."""

import attrs
import numpy as np
import pytest
import torch

from mstar_core.errors import ConfigError, RequestError
from mstar_core.resources.base import ResourceSpec
from mstar_core.resources.kv import KVResource
from mstar_core.testing.resources import World, decode_lease, opening_of, step_of

GEOMETRY = {"num_layers": 2, "num_kv_heads": 1, "head_dim": 4}


@pytest.fixture
def world():
    return World(max_rows=4, max_context=32)


@pytest.fixture
def kv(world):
    return world.build(KVResource, "kv", GEOMETRY, {"page_tokens": 8, "num_pages": 5})


def opened(world, tokens=8):
    return world.open(opening_of(tokens, keys=("kv",)))


def run(world, *handles, spans=1):
    return world.run({"kv": step_of(*handles, spans=spans, key="kv")})["kv"]


def test_asking_for_room_counts_new_pages_and_takes_none(world, kv):
    a, b = opened(world), opened(world)
    short = kv.room(step_of(a, b, spans=[24, 25]))
    assert (short.need, short.free, short.unit, short.rows_that_fit) == (7, 5, "pages", 1)
    assert kv.table.pool.num_free == 5


def test_the_rows_that_fit_have_room(world, kv):
    handles = [opened(world) for _ in range(4)]
    step = step_of(*handles, spans=[8, 16, 17, 1])
    short = kv.room(step)
    assert short.rows_that_fit == 2
    assert kv.room(step.first(2)) is None
    assert kv.room(step.first(3)) is not None


def test_a_page_is_taken_when_a_stream_crosses_into_it(world, kv):
    a = opened(world)
    run(world, a, spans=8)
    assert kv.table.num_held[a] == 1
    run(world, a)
    assert kv.table.num_held[a] == 2
    for _ in range(7):
        run(world, a)
    assert (kv.table.num_held[a], kv.table.length[a]) == (2, 16)


def test_tokens_are_written_behind_each_other_page_by_page(world, kv):
    a, b = opened(world), opened(world)
    run(world, a, spans=7)
    plan = run(world, b, a, spans=[2, 3])
    pa, pb = kv.table.pages[a], kv.table.pages[b]
    want = [pb[0] * 8, pb[0] * 8 + 1, pa[0] * 8 + 7, pa[1] * 8, pa[1] * 8 + 1]
    assert plan.write_T.tolist() == want
    assert plan.before_B.tolist() == [0, 7]
    assert plan.kv_lens_B.tolist() == [2, 10]
    assert plan.W == 2


def test_a_span_of_zero_reads_the_stream_and_adds_nothing(world, kv):
    a = opened(world)
    run(world, a, spans=5)
    plan = run(world, a, spans=0)
    assert (plan.kv_lens_B.tolist(), plan.before_B.tolist()) == ([5], [5])
    assert plan.write_T.tolist() == []
    assert kv.table.length[a] == 5


def test_padding_rows_read_nothing_and_write_the_sink(world, kv):
    a = opened(world)
    run(world, a, spans=9)
    plan = world.plan({"kv": step_of(a, spans=0, key="kv")}, decode_lease(3))["kv"]
    assert plan.kv_lens_B.tolist() == [9, 0, 0]
    assert plan.pages_BW[1:].tolist() == [[0] * 4] * 2
    assert plan.write_T.tolist() == [0, 0, 0]
    assert plan.W == 4


def test_admission_counts_pages_that_others_were_promised(world, kv):
    opened(world, tokens=24)
    short = kv.can_open(opening_of(24, keys=("kv",)))
    assert (short.need, short.free) == (3, 2)
    assert kv.can_open(opening_of(16, keys=("kv",))) is None


def taking(first, life):
    return attrs.evolve(opening_of(life, keys=("kv",)), first={"kv": first})


def test_admission_may_take_a_first_chunk_alone(world, kv):
    a = world.open(taking(9, 24))
    assert (kv.table.num_held[a], kv.table.num_life[a], kv.table.num_owed) == (2, 3, 0)
    assert kv.table.pool.num_free == 3
    assert kv.room(step_of(a, spans=9)) is None


def test_a_newcomer_leaves_a_page_for_each_stream_that_grows(world, kv):
    world.open(taking(8, 24))
    world.open(taking(8, 8))  # has all that it will ever need
    assert kv.can_open(taking(16, 24)) is None
    short = kv.can_open(taking(17, 24))
    assert (short.need, short.free) == (3, 2)


def test_a_return_takes_the_page_of_the_next_token_too(world, kv):
    a = world.open(taking(8, 24))
    run(world, a, spans=8)
    kv.offload(a, 0)
    world.retire()
    assert kv.table.pool.num_free == 5
    assert kv.can_reload(a) is None
    kv.reload(a)
    assert (kv.table.num_held[a], kv.table.length[a]) == (2, 8)
    assert kv.room(step_of(a)) is None


def test_a_request_longer_than_the_pool_is_refused_at_the_door(world, kv):
    with pytest.raises(RequestError, match="at most 32 tokens"):
        kv.check(opening_of(33, keys=("kv",)))
    small = World(max_context=32).build(KVResource, "kv", GEOMETRY, {"num_pages": 1})
    small.check(opening_of(32, keys=("kv",)))
    tiny = World(max_context=32).build(
        KVResource, "kv", GEOMETRY, {"num_pages": 1, "page_tokens": 8}
    )
    with pytest.raises(RequestError, match="at most 8 tokens"):
        tiny.check(opening_of(9, keys=("kv",)))


def test_a_fork_shares_full_pages_and_copies_the_partial_one(world, kv):
    parent, child = opened(world, 16), opened(world, 16)
    run(world, parent, spans=11)
    copies = kv.fork(parent, child)
    first, second = kv.table.pages[parent, :2].tolist()
    assert kv.table.pages[child, 0] == first
    assert copies == [(second, kv.table.pages[child, 1])]
    assert kv.table.length[child] == 11
    assert run(world, child).write_T.tolist() == [copies[0][1] * 8 + 3]


def test_a_fork_at_a_page_edge_copies_nothing(world, kv):
    parent, child = opened(world, 16), opened(world, 16)
    run(world, parent, spans=8)
    assert kv.fork(parent, child) == []
    assert kv.table.num_held[child] == 1


def test_a_shared_page_is_free_when_its_last_owner_is_gone_behind_the_newest_fence(world, kv):
    parent, child = opened(world, 8), opened(world, 8)
    run(world, parent, spans=8)
    kv.fork(parent, child)
    kv.close(parent, 3)
    assert kv.held()["pages"] == (4, 5)
    kv.close(child, 1)
    assert kv.held()["pages"] == (5, 5)
    world.fences.retire(2)
    assert kv.table.pool.num_free == 4
    world.fences.retire(3)
    assert kv.table.pool.num_free == 5


def test_a_pool_is_as_large_as_the_admitted_requests_can_use_and_memory_holds():
    spec = ResourceSpec(key="kv", kind="kv", options=GEOMETRY)
    world = World(max_rows=2, max_context=20)
    page = 2 * 2 * 4 * 8 * 4
    config = {"page_tokens": 8}
    assert KVResource.pool_bytes(spec, world.env(config)) == (2 * 3 + 1) * page
    assert world.build(KVResource, "kv", GEOMETRY, config).pool.num_pages == 7
    capped = World(max_rows=2, max_context=20, memory_bytes=5 * page)
    assert capped.build(KVResource, "kv", GEOMETRY, config).pool.num_pages == 5
    with pytest.raises(ConfigError, match="two pages"):
        World(memory_bytes=page).build(KVResource, "kv", GEOMETRY, config)


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"page_tokens": 48}, "page_tokens"),
        ({"page_tokens": 4}, "page_tokens"),
        ({"page_tokens": True}, "page_tokens"),
        ({"num_pages": 0}, "num_pages"),
        ({"page_token": 8}, "write 'page_tokens'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(world, config, where):
    with pytest.raises(ConfigError, match=where):
        world.build(KVResource, "kv", GEOMETRY, config)


def test_a_pool_can_be_written_without_attention(world, kv):
    a = opened(world)
    plan = run(world, a, spans=3)
    k_TGD = torch.arange(12.0).view(3, 1, 4)
    kv.writer(1)(k_TGD, -k_TGD, plan)
    k_PpGD, v_PpGD = kv.layer(1)
    page = int(kv.table.pages[a, 0])
    assert torch.equal(k_PpGD[page, :3], k_TGD)
    assert torch.equal(v_PpGD[page, :3], -k_TGD)
    assert not kv.layer(0)[0].any()


def test_random_streams_never_share_or_lose_a_page(world):
    kv = world.build(KVResource, "kv", GEOMETRY, {"page_tokens": 8, "num_pages": 9})
    rng, live, left = np.random.default_rng(0), [], {}
    for _ in range(400):
        tokens = int(rng.integers(1, 33))
        opening = opening_of(tokens, keys=("kv",))
        if len(live) < 4 and kv.can_open(opening) is None:
            live.append(world.open(opening))
            left[live[-1]] = tokens
        spans = [min(int(rng.integers(0, 9)), left[h]) for h in live]
        assert kv.room(step_of(*live, spans=spans)) is None
        run(world, *live, spans=spans)
        for handle, span in zip(live, spans, strict=True):
            left[handle] -= span
        held = np.concatenate([kv.table.pages[h, : kv.table.num_held[h]] for h in live] or [[]])
        assert len(set(held.tolist())) == len(held)
        assert 0 not in held
        assert kv.held()["pages"] == (9 - len(held), 9)
        for handle in [h for h in live if not left[h] or rng.random() < 0.05]:
            world.close(handle)
            live.remove(handle)
        if rng.random() < 0.5:
            world.retire()
