"""Recurrent slots: held for life, fresh until the first step."""

import pytest
import torch

from mstar_core.resources.state import StateResource
from mstar_core.testing.resources import World, decode_lease, opening_of, step_of

OPTIONS = {"num_layers": 2, "blocks": {"s": ((3,), torch.float32), "t": ((2, 2), "model")}}


@pytest.fixture
def world():
    return World(max_rows=2)


@pytest.fixture
def state(world):
    return world.build(StateResource, "state", OPTIONS)


def run(world, *handles, spans=1, lease=None):
    return world.run({"state": step_of(*handles, spans=spans, key="state")}, lease)["state"]


def test_admission_takes_a_slot_and_the_null_slot_is_never_given_out(world, state):
    a, b = world.open(), world.open()
    assert sorted(state.slot[[a, b]].tolist()) == [1, 2]
    short = state.can_open(opening_of())
    assert (short.need, short.free, short.cooling, short.unit) == (1, 0, 0, "slots")


def test_a_slot_is_fresh_until_the_first_step_that_adds_something(world, state):
    a = world.open()
    assert run(world, a, spans=0).fresh_B.tolist() == [True]
    assert run(world, a).fresh_B.tolist() == [True]
    assert run(world, a).fresh_B.tolist() == [False]


def test_a_request_keeps_its_slot_in_any_batch(world, state):
    a, b = world.open(), world.open()
    assert run(world, a).slots_B.tolist() == [state.slot[a]]
    assert run(world, b, a).slots_B.tolist() == [state.slot[b], state.slot[a]]


def test_padding_rows_are_fresh_on_the_null_slot(world, state):
    a = world.open()
    run(world, a)
    plan = run(world, a, lease=decode_lease(3))
    assert plan.slots_B.tolist() == [state.slot[a], 0, 0]
    assert plan.fresh_B.tolist() == [False, True, True]


def test_a_slot_is_taken_again_only_when_its_last_entry_is_retired(world, state):
    a, b = world.open(), world.open()
    run(world, a, b)
    world.close(a)
    assert state.can_open(opening_of()).cooling == 1
    world.retire()
    c = world.open()
    assert run(world, c).fresh_B.tolist() == [True]


def test_a_layer_has_its_own_blocks(state):
    state.layer(0)["s"][1] = 1
    assert not state.layer(1)["s"].any()
    assert state.layer(1)["t"].shape == (3, 2, 2)
