"""Edges: a ring of items per request, in places that no other request has."""

import random
from collections import deque

import numpy as np
import pytest
import torch

from mstar_core.engine.edges import EdgeRing
from mstar_core.fixed import FixedBuffers
from mstar_core.model.walks import Edge
from mstar_core.resources.base import BuildEnv
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable

ROWS, CAPACITY = 3, 4


@pytest.fixture
def env():
    return BuildEnv(
        node="edges",
        device=torch.device("cpu"),
        dtype=torch.float32,
        buffers=FixedBuffers(torch.device("cpu")),
        table=RequestTable(8),
        fences=Fences(),
        max_rows=ROWS,
        token_budget=8,
        max_context=64,
        config={},
        built={},
        bind=lambda operation, geometry: None,
    )


@pytest.fixture
def ring(env):
    edge = Edge(name="e", source="a", target="b", input="x", shape=(2,), capacity=CAPACITY)
    return EdgeRing(edge, env)


def array(*values):
    return np.asarray(values, np.int64)


def put(ring, handle, values, padding=0):
    """One step that makes items; returns its places."""
    places = ring.places_out(array(handle), array(len(values)), len(values) + padding)
    items = torch.tensor(values + [-1.0] * padding)[:, None].expand(-1, 2)
    ring.write(items, torch.from_numpy(places))
    ring.commit(array(handle), array(len(values)), array(0))
    return places


def get(ring, handle, count):
    """One step that uses items; returns them."""
    places = ring.places_in(array(handle), array(count), count)
    items = ring.read(torch.from_numpy(places))
    ring.commit(array(handle), array(0), array(count))
    assert torch.equal(items[:, 0], items[:, 1])
    return items[:, 0].tolist()


def test_items_come_out_in_the_order_they_went_in(ring):
    ring.open(1)
    put(ring, 1, [1.0, 2.0, 3.0])
    assert (ring.waiting(1), ring.room(1)) == (3, 1)
    assert get(ring, 1, 2) == [1.0, 2.0]
    put(ring, 1, [4.0, 5.0, 6.0])
    assert (ring.waiting(1), ring.room(1)) == (4, 0)
    assert get(ring, 1, 4) == [3.0, 4.0, 5.0, 6.0]


def test_padding_lands_in_place_0_that_nobody_reads(ring):
    ring.open(1)
    places = put(ring, 1, [1.0, 2.0], padding=3)
    assert places[2:].tolist() == [0, 0, 0]
    assert (places[:2] > 0).all()
    assert get(ring, 1, 2) == [1.0, 2.0]


def test_rows_of_one_step_use_their_own_places(ring):
    for handle in (1, 2):
        ring.open(handle)
    places = ring.places_out(array(1, 2), array(2, 3), 5)
    assert len(set(places.tolist())) == 5
    ring.write(torch.arange(5.0)[:, None].expand(-1, 2), torch.from_numpy(places))
    ring.commit(array(1, 2), array(2, 3), array(0, 0))
    assert get(ring, 2, 3) == [2.0, 3.0, 4.0]
    assert get(ring, 1, 2) == [0.0, 1.0]


def test_a_ring_is_free_only_behind_its_fence(ring, env):
    for handle in range(ROWS):
        assert ring.can_open() is None
        ring.open(handle)
    ring.close(0, fence=5)
    short = ring.can_open()
    assert (short.free, short.cooling, short.unit) == (0, 1, "rings")
    assert ring.held() == (1, ROWS)
    env.fences.retire(4)
    assert ring.can_open() is not None
    env.fences.retire(5)
    assert ring.can_open() is None


def test_closing_twice_gives_back_once(ring):
    ring.open(1)
    ring.close(1, fence=-1)
    ring.close(1, fence=-1)
    assert ring.held() == (ROWS, ROWS)


def test_a_handle_that_is_used_again_starts_empty(ring, env):
    ring.open(1)
    put(ring, 1, [1.0, 2.0])
    ring.close(1, fence=-1)
    env.table.close(1)
    ring.open(1)
    assert (ring.waiting(1), ring.room(1)) == (0, CAPACITY)


@pytest.mark.parametrize("seed", range(20))
def test_random_use_of_all_rings_is_a_queue_for_each(ring, seed):
    rng, queues, count = random.Random(seed), {}, 0.0
    for handle in range(ROWS):
        ring.open(handle)
        queues[handle] = deque()
    for _ in range(200):
        handle = rng.randrange(ROWS)
        waiting = queues[handle]
        assert ring.waiting(handle) == len(waiting)
        if rng.random() < 0.5 and ring.room(handle):
            values = [count + i for i in range(rng.randint(1, ring.room(handle)))]
            count += len(values)
            waiting.extend(values)
            put(ring, handle, values, padding=rng.randrange(3))
        elif waiting:
            number = rng.randint(1, len(waiting))
            assert get(ring, handle, number) == [waiting.popleft() for _ in range(number)]


def test_padding_of_a_resident_step_lands_in_the_place_that_is_nobodys(ring, env):
    """And each row in the place that the host counts, round the ring and back."""
    handles = [env.table.open() for _ in range(2)]
    for handle in handles:
        ring.open(handle)
    for step in range(3 * CAPACITY):
        made = array(1, 1) if step % 3 else array(1, 0)
        columns = {c.name: torch.from_numpy(c.host[handles]) for c in ring.columns()}
        padded = {name: torch.cat([cells, cells.new_zeros(1)]) for name, cells in columns.items()}
        plan = ring.resident_plan(padded, torch.tensor([True, True, False]))
        want = ring.places_out(array(*handles), array(1, 1), 3)
        assert plan.places_B.tolist() == want.tolist()
        assert plan.places_B[2] == 0
        ring.commit(array(*handles), made, made)
