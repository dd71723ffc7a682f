"""Positions count on, shifted by the request's offset, and turn into angles."""

import math

import pytest
import torch

from mstar_core.errors import ConfigError, RequestError
from mstar_core.resources.position import PositionPlan, PositionResource
from mstar_core.testing.resources import World, opening_of, prefill_lease, step_of


def run(world, *handles, spans=1, lease=None):
    return world.run({"position": step_of(*handles, spans=spans, key="position")}, lease)[
        "position"
    ]


def with_offset(offset):
    return opening_of(settings={"position": {"offset": offset}})


def test_positions_are_shifted_by_the_offset_and_the_index_is_not():
    world = World()
    world.build(PositionResource, "position", {"rotary_dim": 4})
    a, b = world.open(with_offset(-2)), world.open()
    plan = run(world, a, b, spans=[3, 2])
    assert (plan.index_T + plan.offset_T).tolist() == [-2, -1, 0, 0, 1]
    plan = run(world, b, a, lease=prefill_lease(3, 4))
    assert plan.index_T.tolist() == [2, 3, 0, 0]
    assert plan.offset_T.tolist() == [0, -2, 0, 0]


def test_an_offset_that_is_no_number_is_refused_at_the_door():
    position = World().build(PositionResource, "position", {"rotary_dim": 4})
    with pytest.raises(RequestError, match=r"position\.offset"):
        position.check(with_offset("2"))


def test_rope_turns_features_in_halves():
    position = World().build(PositionResource, "position", {"rotary_dim": 4, "theta": 100.0})
    plan = PositionPlan(index_T=torch.tensor([0, 5]), offset_T=torch.tensor([0, -2]))
    cos, sin = position.rope(plan)
    want = [3.0, 3.0 / 10.0]
    torch.testing.assert_close(cos, torch.tensor([[1.0] * 4, [math.cos(x) for x in want * 2]]))
    torch.testing.assert_close(sin, torch.tensor([[0.0] * 4, [math.sin(x) for x in want * 2]]))


MROPE = {"kind": "mrope", "rotary_dim": 64, "theta": 1e7, "sections": (11, 11, 10)}


def test_interleaved_axes_take_turns_until_their_sections_are_used_up():
    position = World().build(PositionResource, "position", MROPE)
    axis_r = position.axis_R[:32].tolist()
    assert axis_r[:7] == [0, 1, 2, 0, 1, 2, 0]
    assert axis_r[27:] == [0, 1, 2, 0, 1]
    assert [axis_r.count(i) for i in range(3)] == [11, 11, 10]


def test_sections_may_lie_one_behind_the_other():
    options = MROPE | {"interleaved": False}
    position = World().build(PositionResource, "position", options)
    assert position.axis_R.tolist() == ([0] * 11 + [1] * 11 + [2] * 10) * 2


def test_text_has_the_same_angles_with_and_without_axes():
    """A text token stands at one position on all three axes."""
    mrope = World().build(PositionResource, "position", MROPE)
    rope = World().build(PositionResource, "position", {"rotary_dim": 64, "theta": 1e7})
    at = torch.arange(100)
    plan = PositionPlan(index_T=at, offset_T=torch.zeros_like(at))
    want = rope.rope(plan)
    for got in (mrope.rope(plan), mrope.rope3(at.expand(3, -1))):
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])


def test_each_frequency_turns_by_its_own_axis():
    position = World().build(PositionResource, "position", MROPE)
    cos, sin = position.rope3(torch.tensor([[5], [7], [11]]))
    for r, axis in enumerate(position.axis_R[:32].tolist()):
        angle = [5, 7, 11][axis] * 1e7 ** (-2 * r / 64)
        assert cos[0, r].item() == pytest.approx(math.cos(angle), abs=1e-5)
        assert sin[0, r + 32].item() == pytest.approx(math.sin(angle), abs=1e-5)


def test_learned_positions_need_no_angles():
    world = World()
    world.build(PositionResource, "position", {"kind": "learned"})
    assert run(world, world.open(), spans=3).index_T.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"rotary_dim": 5}, "rotary_dim"),
        ({}, "rotary_dim"),
        (MROPE | {"sections": (1, 2, 3)}, "sections"),
        ({"kind": "alibi"}, "kind"),
    ],
)
def test_an_impossible_encoding_is_named(options, where):
    with pytest.raises(ConfigError, match=where):
        World().build(PositionResource, "position", options)
