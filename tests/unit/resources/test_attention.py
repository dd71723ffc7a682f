"""Attention through its resource equals attention over the whole stream at once."""

import pytest
import torch

from mstar_core.errors import ConfigError
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.position import PositionResource
from mstar_core.testing.resources import World, decode_lease, prefill_lease, step_of
from mstar_core.testing.world import bind_torch

HEADS = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
KV = {"num_layers": 2, "num_kv_heads": 2, "head_dim": 8}
KEYS = ("kv", "attention", "position")


def dense(q_TND, k_TGD, v_TGD, causal=True):
    k, v = (x.repeat_interleave(2, 1).transpose(0, 1) for x in (k_TGD, v_TGD))
    o = torch.nn.functional.scaled_dot_product_attention(
        q_TND.transpose(0, 1), k, v, is_causal=causal
    )
    return o.transpose(0, 1)


@pytest.fixture
def world():
    world = World(max_rows=4, max_context=32)
    kv = world.build(KVResource, "kv", KV, {"page_tokens": 8})
    for pool in (kv.pool.k_LPpGD, kv.pool.v_LPpGD):
        pool.fill_(float("nan"))
    world.build(AttentionResource, "attention", HEADS, depends_on={"kv": "kv"})
    world.build(PositionResource, "position", {"rotary_dim": 4})
    return world


def step(world, handles, spans, lease=None):
    parts = {key: step_of(*handles, spans=spans, key=key) for key in KEYS}
    return world.run(parts, lease)


@pytest.mark.parametrize("cuts", [[20], [1] * 20, [7, 1, 1, 9, 2], [8, 8, 4]])
@pytest.mark.parametrize("leased", [False, True])
def test_a_stream_in_any_pieces_beside_another_equals_the_whole(world, cuts, leased):
    torch.manual_seed(0)
    attention, rope = world.resources["attention"].layer(1), world.resources["position"].rope
    a, other = world.open(), world.open()
    q, k, v = torch.randn(20, 4, 8), torch.randn(20, 2, 8), torch.randn(20, 2, 8)
    got, at = [], 0
    for span in cuts:
        lease = (decode_lease(3) if span == 1 else prefill_lease(3, 24)) if leased else None
        plans = step(world, [other, a], [1, span], lease)
        tokens = 1 + span if lease is None else lease.bucket.tokens
        packed = []
        for x in (q, k, v):
            wide = torch.randn(tokens, *x.shape[1:])
            wide[1 : 1 + span] = x[at : at + span]
            packed.append(wide)
        o = attention.step(*packed, plans["attention"], rope=rope(plans["position"]))
        assert o.isfinite().all()
        got.append(o[1 : 1 + span])
        at += span
    cos, sin = rope(world_positions(20))
    turned_q, turned_k = (turn(x, cos, sin) for x in (q, k))
    torch.testing.assert_close(torch.cat(got), dense(turned_q, turned_k, v), atol=1e-5, rtol=1e-5)


def world_positions(n):
    from mstar_core.resources.position import PositionPlan

    return PositionPlan(index_T=torch.arange(n), offset_T=torch.zeros(n, dtype=torch.int64))


def turn(x_TND, cos_TR, sin_TR):
    x, rest = x_TND[..., :4], x_TND[..., 4:]
    half = torch.cat((-x[..., 2:], x[..., :2]), -1)
    return torch.cat((x * cos_TR[:, None] + half * sin_TR[:, None], rest), -1)


def test_a_cross_pool_is_written_once_and_only_read_by_the_queries():
    """Two pools on one node: the cross pool takes part with a span of 0."""
    torch.manual_seed(0)
    world = World(max_rows=2, max_context=16)
    world.build(KVResource, "kv", KV, {"page_tokens": 8})
    cross = world.build(KVResource, "cross_kv", KV | {"max_tokens": 12}, {"page_tokens": 8})
    options = HEADS | {"causal": False}
    layer = world.build(AttentionResource, "cross", options, depends_on={"kv": "cross_kv"}).layer(0)
    a, b = world.open(), world.open()
    k, v = torch.randn(19, 2, 8), torch.randn(19, 2, 8)
    plans = world.run({"cross_kv": step_of(a, b, spans=[12, 7], key="cross_kv")})
    cross.writer(0)(k, v, plans["cross_kv"])
    for spans, lease in (([3, 2], None), ([1, 1], decode_lease(4)), ([4, 1], prefill_lease(3, 8))):
        plans = world.run(
            {
                "kv": step_of(a, b, spans=spans, key="kv"),
                "cross_kv": step_of(a, b, spans=0, key="cross_kv"),
                "cross": step_of(a, b, spans=spans, key="cross"),
            },
            lease,
        )
        q = torch.randn(sum(spans) if lease is None else lease.bucket.tokens, 4, 8)
        o = layer.step(q, None, None, plans["cross"])
        n, m = spans
        torch.testing.assert_close(o[:n], dense(q[:n], k[:12], v[:12], False))
        torch.testing.assert_close(o[n : n + m], dense(q[n : n + m], k[12:], v[12:], False))
        assert o.isfinite().all()
    assert cross.table.length[[a, b]].tolist() == [12, 7]


@pytest.mark.parametrize("causal", [True, False])
def test_ragged_rows_attend_over_themselves(causal):
    torch.manual_seed(0)
    world = World()
    ragged = world.build(AttentionResource, "attention", HEADS | {"causal": causal})
    a, b = world.open(), world.open()
    parts = {"attention": step_of(a, b, spans=[5, 3], key="attention")}
    q, k, v = torch.randn(12, 4, 8), torch.randn(12, 2, 8), torch.randn(12, 2, 8)
    for lease, tokens in ((None, 8), (prefill_lease(4, 12), 12)):
        plan = world.run(parts, lease)["attention"]
        o = ragged.layer(0).step(q[:tokens], k[:tokens], v[:tokens], plan)
        for row in (slice(0, 5), slice(5, 8)):
            torch.testing.assert_close(o[row], dense(q[row], k[row], v[row], causal))
        assert o.isfinite().all()


def test_norms_gate_and_scale_are_applied_around_attention(world):
    torch.manual_seed(0)
    layer = world.resources["attention"].layer(0)
    a = world.open()
    plan = step(world, [a], [6])["attention"]
    q, k, v, gate = (torch.randn(6, n, 8) for n in (4, 2, 2, 4))
    norm = torch.rand(8) + 0.5
    o = layer.step(q, k, v, plan, gate_TND=gate, q_norm=norm, k_norm=norm)

    def normed(x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm

    torch.testing.assert_close(o, dense(normed(q), normed(k), v) * gate.sigmoid())


def test_an_attention_over_a_pool_of_other_heads_is_refused(world):
    for options, role in ((HEADS | {"head_dim": 4}, "kv"), (HEADS, "nothing"), (HEADS, "position")):
        with pytest.raises(ConfigError, match="depends_on"):
            world.build(AttentionResource, "other", options, depends_on={"kv": role})


def test_a_backend_is_told_how_many_tokens_a_row_may_hold_at_most():
    """The table of a step without a lease is narrower, and that of a small pool than a context."""
    for pages, most in ((3, 24), (9, 32)):
        given, world = [], World(max_rows=2, max_context=32)
        world.bind = lambda operation, geometry, given=given: (
            given.append(geometry) or bind_torch(operation, geometry)
        )
        world.build(KVResource, "kv", KV, {"page_tokens": 8, "num_pages": pages})
        world.build(AttentionResource, "attention", HEADS, depends_on={"kv": "kv"})
        assert given[-1] == HEADS | {"num_kv_heads": 2, "page_tokens": 8, "max_tokens": most}
