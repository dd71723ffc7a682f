"""Carry rows take a step's outputs to the next step without the host."""

import pytest
import torch

from mstar_core.resources.carry import CarryResource
from mstar_core.testing.resources import World, carry_step_of, decode_lease, step_of

TENSORS = {"ids": ((), torch.int64, -1), "hidden": ((2,), "model", 0)}


@pytest.fixture
def world():
    return World(max_rows=3)


@pytest.fixture
def carry(world):
    return world.build(CarryResource, "carry", {"tensors": TENSORS})


def run(world, *handles, lease=None, **kwargs):
    return world.run({"carry": carry_step_of(*handles, **kwargs)}, lease)["carry"]


def test_a_sampled_token_is_the_next_steps_input(world, carry):
    a, b = world.open(), world.open()
    plan = run(world, a, b, spans=[3, 2])
    assert carry.read("ids", torch.arange(5), plan).tolist() == [0, 1, 2, 3, 4]
    carry.write("ids", torch.tensor([70, 80]), plan)
    plan = run(world, b, a, carry=True, lease=decode_lease(4))
    got = carry.read("ids", torch.full((4,), 5), plan)
    assert got.tolist() == [80, 70, 5, 5]


def test_rows_of_one_step_may_come_from_the_host_and_from_carry(world, carry):
    a, b = world.open(), world.open()
    carry.write("ids", torch.tensor([70]), run(world, a))
    plan = run(world, b, a, spans=[2, 1], carry=[False, True])
    assert carry.read("ids", torch.tensor([1, 2, 0]), plan).tolist() == [1, 2, 70]


def test_a_row_that_does_not_sample_and_padding_write_the_trash_row(world, carry):
    a, b = world.open(), world.open()
    carry.write("ids", torch.tensor([70, 80]), run(world, a, b))
    plan = run(world, a, b, carry=True, samples=[False, True], lease=decode_lease(4))
    assert plan.write_B.tolist() == [0, carry.row[b], 0, 0]
    carry.write("ids", torch.tensor([1, 2, 3, 4]), plan)
    rows = carry.tensors["ids"]
    assert (rows[carry.row[a]], rows[carry.row[b]]) == (70, 2)


def test_a_row_is_fresh_until_a_step_that_samples(world, carry):
    a = world.open()
    assert run(world, a, spans=4, samples=False).fresh_B.tolist() == [True]
    assert run(world, a, spans=2).fresh_B.tolist() == [True]
    assert run(world, a, carry=True).fresh_B.tolist() == [False]


def test_vectors_are_carried_too(world, carry):
    a = world.open()
    carry.write("hidden", torch.tensor([[1.0, 2.0]]), run(world, a))
    plan = run(world, a, carry=True)
    assert carry.read("hidden", torch.zeros(1, 2), plan).tolist() == [[1.0, 2.0]]
    assert carry.tensors["ids"].tolist() == [-1] * 4


def test_the_leading_rows_keep_who_samples(world, carry):
    step = carry_step_of(1, 2, carry=[True, False], samples=[False, True]).first(1)
    assert (step.carry_B.tolist(), step.samples_B.tolist()) == ([True], [False])


def test_a_step_that_does_not_say_who_samples_is_a_bug(world, carry):
    with pytest.raises(TypeError, match="does not say which rows sample"):
        carry.plan(step_of(world.open()), None, {})
