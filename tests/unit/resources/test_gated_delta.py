"""Gated delta mixers through slots: pieces equal the whole, and slots keep rows apart."""

import pytest
import torch

from mstar_core.errors import ConfigError
from mstar_core.ops.gated_delta import GdnWeights
from mstar_core.resources.gated_delta import GatedDeltaResource
from mstar_core.resources.state import StateResource
from mstar_core.testing.resources import World, decode_lease, prefill_lease, step_of

OPTIONS = {"num_k_heads": 1, "num_v_heads": 2, "k_dim": 4, "v_dim": 3, "conv_taps": 4}
BLOCKS = {"conv": ((14, 3), "model"), "ssm": ((2, 4, 3), torch.float32)}


@pytest.fixture
def world():
    world = World(max_rows=3)
    state = world.build(StateResource, "state", {"num_layers": 2, "blocks": BLOCKS})
    for block in state.pool.blocks.values():
        block.fill_(float("nan"))
    world.build(GatedDeltaResource, "gated_delta", OPTIONS, depends_on={"state": "state"})
    return world


def weights():
    torch.manual_seed(1)
    return GdnWeights(
        conv_CK=torch.randn(14, 4) * 0.5,
        A_log_H=torch.randn(2) * 0.1,
        dt_bias_H=torch.randn(2),
        norm_D=torch.rand(3) + 0.5,
    )


def tokens(n):
    torch.manual_seed(2)
    return torch.randn(n, 14), torch.randn(n, 6), torch.randn(n, 2), torch.randn(n, 2)


def mix(world, handles, spans, packed, lease=None):
    parts = {key: step_of(*handles, spans=spans, key=key) for key in ("state", "gated_delta")}
    plan = world.run(parts, lease)["gated_delta"]
    wide = [torch.randn(len(plan.row_T), x.shape[1]) for x in packed]
    for x, given in zip(wide, packed, strict=True):
        x[: len(given)] = given
    o = world.resources["gated_delta"].layer(1).step(*wide, weights(), plan)
    assert o.isfinite().all()
    return o


@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 6], [2, 2, 8], [11, 1]])
@pytest.mark.parametrize("leased", [False, True])
def test_a_stream_in_any_pieces_equals_the_whole(world, cuts, leased):
    packed = tokens(12)
    whole = mix(world, [world.open()], [12], packed)
    a, got, at = world.open(), [], 0
    for span in cuts:
        lease = (decode_lease(3) if span == 1 else prefill_lease(3, 16)) if leased else None
        part = [x[at : at + span] for x in packed]
        got.append(mix(world, [a], [span], part, lease)[:span])
        at += span
    torch.testing.assert_close(torch.cat(got), whole, atol=1e-4, rtol=1e-4)


def test_a_slot_that_is_used_again_starts_from_zero(world):
    packed = tokens(6)
    a = world.open()
    first = mix(world, [a], [6], packed)
    world.close(a)
    world.retire()
    torch.testing.assert_close(mix(world, [world.open()], [6], packed), first)


def test_a_state_of_other_blocks_or_layout_is_refused():
    world = World()
    wrong = {**BLOCKS, "conv": ((14, 4), "model")}
    world.build(StateResource, "wrong", {"num_layers": 1, "blocks": wrong})
    odd = {"num_layers": 1, "blocks": BLOCKS, "layout": "k-major"}
    world.build(StateResource, "odd", odd)
    for role in ("wrong", "nothing"):
        with pytest.raises(ConfigError, match=r"depends_on\.state"):
            world.build(GatedDeltaResource, "g", OPTIONS, depends_on={"state": role})
    with pytest.raises(ConfigError, match="layout"):
        world.build(GatedDeltaResource, "g", OPTIONS, depends_on={"state": "odd"})
