"""The delta rule's two forms, large pools, and what the torch backend refuses."""

import pytest
import torch
from attrs import evolve

from mstar_core.ops.backend import BindRequest
from mstar_core.ops.functional import l2_norm
from mstar_core.ops.gated_delta import GdnPools, cases, contract
from mstar_core.ops.gated_delta.delta import decay_between, delta_chunks, delta_step
from mstar_core.ops.gated_delta.reference import step
from mstar_core.ops.gated_delta.torch_backend import BACKEND


def run(x):
    return step(x.qkv_TC, x.z_TV, x.b_TH, x.a_TH, x.weights, x.pools, x.plan)


def streams(L, G=2, H=4, D=5, E=7):
    g = torch.Generator().manual_seed(L)
    q, k = (l2_norm(torch.randn(2, L, G, D, generator=g)) for _ in "qk")
    v = torch.randn(2, L, H, E, generator=g)
    gate, beta = -torch.rand(2, L, H, generator=g), torch.rand(2, L, H, generator=g)
    return q, k, v, gate, beta, torch.randn(2, H, D, E, generator=g)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 128, 192])
def test_chunks_are_the_steps(length):
    *tokens, state = streams(length)
    got, last = delta_chunks(*tokens, state)
    out = []
    for t in range(length):
        o, state = delta_step(*(x[:, t] for x in tokens), state)
        out.append(o)
    torch.testing.assert_close(got, torch.stack(out, 1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(last, state, atol=1e-4, rtol=1e-4)


def test_keys_that_are_all_alike_do_not_blow_up_the_chunk():
    *tokens, state = streams(64)
    alike = [x[:, :1].expand_as(x).contiguous() for x in tokens[:3]]
    tokens = [*alike, torch.zeros_like(tokens[3]), torch.ones_like(tokens[4])]
    got, last = delta_chunks(*tokens, state)
    for t in range(64):
        o, state = delta_step(*(x[:, t] for x in tokens), state)
        torch.testing.assert_close(got[:, t], o, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(last, state, atol=1e-4, rtol=1e-4)


def test_a_small_decay_behind_a_large_one_keeps_its_digits():
    gate = torch.full((6,), -1e-3)
    gate[1] = -5e3
    between = decay_between(gate)
    assert float(between[4, 2]) == pytest.approx(torch.tensor(-2e-3, dtype=torch.float64).exp())
    assert float(between[4, 0]) == 0
    assert torch.equal(between, between.tril())


def test_slots_past_the_reach_of_int32_keep_their_state():
    """GDN-19: the last slot of a pool of more than 2**31 entries; untouched pages cost nothing."""
    case = cases.Case(name="far", rows=((2, False),), num_v_heads=32, k_dim=128, v_dim=128)
    x = cases.lay(case)
    slots = 4200
    try:
        ssm = torch.empty(slots, 32, 128, 128)
    except RuntimeError:
        pytest.skip("this machine does not promise 9 GB of memory that is never used")
    conv = torch.zeros(slots, *x.pools.conv_SCK.shape[1:], dtype=torch.bfloat16)
    last = slots - 1
    conv[last], ssm[last] = x.pools.conv_SCK[x.slots[0]].bfloat16(), x.pools.ssm_SHDE[x.slots[0]]
    ssm[0] = 5.0
    pools = GdnPools(conv_SCK=conv, ssm_SHDE=ssm)
    plan = evolve(x.plan, slots_B=torch.tensor([last], dtype=torch.int32))
    run(evolve(x, plan=plan, pools=pools))
    run(x)
    torch.testing.assert_close(ssm[last], x.pools.ssm_SHDE[x.slots[0]], atol=3e-2, rtol=3e-2)
    assert (ssm[0] == 5.0).all()


@pytest.mark.parametrize(
    ("geometry", "code"),
    [({"checkpoint_every": 64}, "checkpoints"), ({"activation": "gelu"}, "activation")],
)
def test_what_torch_does_not_do_is_refused(geometry, code):
    request = BindRequest(
        operation="gated_delta", device="cpu", dtype=torch.float32, geometry=geometry
    )
    refusal = BACKEND.supports(request)
    assert refusal is not None
    assert (refusal.code, refusal.want) == (code, "None" if code == "checkpoints" else "silu")


def test_the_layout_tag_names_both_blocks():
    assert contract.GatedDelta(step=step).layout == "conv_SCK.ssm_SHDE"
