"""Resources inside a captured decode step: replays follow the plan, not what was recorded."""

import attrs
import pytest
import torch

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.recorder import Recorder
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.position import PositionResource
from mstar_core.resources.sampler import SamplerResource, SuppressRule
from mstar_core.testing.resources import (
    World,
    carry_step_of,
    decode_lease,
    opening_of,
    staged,
    step_of,
)

V = 16


def build() -> World:
    world = World(max_rows=3, max_context=32)
    heads = {"num_kv_heads": 1, "head_dim": 4}
    world.build(KVResource, "kv", heads | {"num_layers": 1}, {"page_tokens": 8})
    options = heads | {"num_heads": 2}
    world.build(AttentionResource, "attention", options, depends_on={"kv": "kv"})
    world.build(PositionResource, "position", {"rotary_dim": 4})
    world.build(CarryResource, "carry", {"tensors": {"ids": ((), torch.int64, 0)}})
    world.build(SamplerResource, "sampler", {"vocab_size": V, "rules": (SuppressRule([3], [4]),)})
    return world


def weights():
    torch.manual_seed(0)
    return torch.randn(V, 16), torch.randn(8, V) * 0.3


def forward(world, plans, table_VH, head_HV):
    """A model of one attention: carried ids in, sampled ids out."""
    ids_T = torch.zeros_like(plans["carry"].read_T)
    x = table_VH[world.resources["carry"].read("ids", ids_T, plans["carry"])]
    q, k, v = x[:, :8].view(-1, 2, 4), x[:, 8:12].view(-1, 1, 4), x[:, 12:].view(-1, 1, 4)
    rope = world.resources["position"].rope(plans["position"])
    layer = world.resources["attention"].layer(0)
    o = layer.step(q, k, v, plans["attention"], rope=rope)
    sampler = world.resources["sampler"]
    hidden = sampler.last(o.flatten(1), plans["sampler"])
    got = sampler.sample_head(hidden, head_HV.t(), plans["sampler"])
    world.resources["carry"].write("ids", got.ids_B, plans["carry"])
    return {"ids": got.ids_B, "logprob": got.logprob_B}


def parts(world, *handles):
    told = ("carry", "sampler")
    return {
        key: (carry_step_of if key in told else step_of)(*handles, key=key)
        for key in world.resources
    }


def generate(world, run, variant):
    a = world.open(opening_of(20, keys=("kv",), settings=settings(variant, 1)))
    b = world.open(opening_of(20, keys=("kv",), settings=settings(variant, 2)))
    found = []
    for rows in [(a,), (a, b), (b, a), (b,)] * 4:
        steps = parts(world, *rows)
        steps["carry"].carry_B[:] = world.resources["carry"].written[list(rows)]
        found.append(run(steps, len(rows)))
    return found


def settings(variant, seed):
    return {"sampler": SamplingSettings(temperature=1.0 if variant else 0.0, seed=seed)}


@pytest.mark.parametrize("variant", [0, 1])
def test_a_replayed_decode_step_equals_the_eager_one(variant):
    eager_world, world, both = build(), build(), weights()

    def eager(steps, n):
        out = forward(eager_world, eager_world.run(steps), *both)
        return {name: value[:n].tolist() for name, value in out.items()}

    lease = decode_lease(3, variant)
    plans = {k: staged(p) for k, p in world.plan(parts(world), lease).items()}
    tensors = [
        value
        for plan in plans.values()
        for value in attrs.asdict(plan, recurse=False).values()
        if isinstance(value, torch.Tensor)
    ]
    graph = Recorder(world.buffers).capture(
        "decode", lambda: forward(world, plans, *both), [*tensors, *both]
    )

    def replay(steps, n):
        for key, plan in world.run(steps, lease).items():
            for name, value in attrs.asdict(plan, recurse=False).items():
                if isinstance(value, torch.Tensor):
                    getattr(plans[key], name).copy_(value)
        graph.replay()
        return {name: value[:n].tolist() for name, value in graph.outputs.items()}

    want, got = generate(eager_world, eager, variant), generate(world, replay, variant)
    assert len({i for step in want for i in step["ids"]}) > (4 if variant else 1)
    assert [step["ids"] for step in got] == [step["ids"] for step in want]
    for mine, theirs in zip(got, want, strict=True):
        assert mine["logprob"] == pytest.approx(theirs["logprob"], abs=1e-5)
