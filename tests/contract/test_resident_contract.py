"""The resident plan of every resource of the core is its host plan, whatever came before."""

import pytest
import torch

from mstar_core.config.sampling import SamplingSettings
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.gated_delta import GatedDeltaResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.position import PositionResource
from mstar_core.resources.sampler import SamplerResource, SuppressRule
from mstar_core.resources.state import StateResource
from mstar_core.testing.resident import ResidentContract
from mstar_core.testing.resident_tables import Tables
from mstar_core.testing.world import opening_of

KV = {"num_layers": 1, "num_kv_heads": 1, "head_dim": 4}
HEADS = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4}
GDN = {"num_k_heads": 1, "num_v_heads": 2, "k_dim": 4, "v_dim": 3, "conv_taps": 4}
BLOCKS = {"conv": ((14, 3), "model"), "ssm": ((2, 4, 3), torch.float32)}
CARRY = {"tensors": {"ids": ((), torch.int64, 0)}}


class TestKVIsResident(ResidentContract):
    def build(self, world):
        world.build(KVResource, "kv", KV, {"page_tokens": 8})


class TestAReadOnlyPoolIsResident(ResidentContract):
    """Written by the prompt, read by every decode, as a cross window is."""

    reads = ("cross_kv",)

    def build(self, world):
        world.build(KVResource, "cross_kv", KV, {"page_tokens": 8})
        world.build(AttentionResource, "cross", HEADS, depends_on={"kv": "cross_kv"})


class TestTwoPoolsAreResident(ResidentContract):
    reads = ("cross_kv",)

    def build(self, world):
        world.build(KVResource, "kv", KV, {"page_tokens": 8})
        world.build(KVResource, "cross_kv", KV | {"max_tokens": 32}, {"page_tokens": 16})
        world.build(AttentionResource, "attention", HEADS, depends_on={"kv": "kv"})
        world.build(AttentionResource, "cross", HEADS, depends_on={"kv": "cross_kv"})


class TestPositionIsResident(ResidentContract):
    def build(self, world):
        world.build(PositionResource, "position", {"rotary_dim": 4})

    def opening(self, world, number):
        return opening_of(keys=("position",), settings={"position": {"offset": -number}})


class TestStateIsResident(ResidentContract):
    def build(self, world):
        world.build(StateResource, "state", {"num_layers": 1, "blocks": BLOCKS})
        world.build(GatedDeltaResource, "gated_delta", GDN, depends_on={"state": "state"})


class TestCarryIsResident(ResidentContract):
    def build(self, world):
        world.build(CarryResource, "carry", CARRY)


class TestSamplerIsResident(ResidentContract):
    """Every request has settings of its own, which only host-planned steps bring."""

    def build(self, world):
        world.build(CarryResource, "carry", CARRY)
        rules = (SuppressRule([1], name="one"), SuppressRule([2], name="two"))
        world.build(SamplerResource, "sampler", {"vocab_size": 16, "rules": rules})

    def opening(self, world, number):
        settings = SamplingSettings(
            temperature=number % 5 / 4,
            top_k=number % 7,
            top_p=1 - number % 3 / 10,
            min_p=number % 4 / 10,
            seed=number,
        )
        wanted = {"one": number % 2 == 0, "two": number % 3 == 0}
        return opening_of(settings={"sampler": settings, "sampler_rules": wanted})


class TestEverythingIsResident(TestSamplerIsResident):
    """Two pools, a state, positions, a carry row and a sampler on one node."""

    reads = ("cross_kv",)

    def build(self, world):
        super().build(world)
        TestTwoPoolsAreResident.build(self, world)
        TestStateIsResident.build(self, world)
        TestPositionIsResident.build(self, world)

    def opening(self, world, number):
        settings = super().opening(world, number).settings | {"position": {"offset": number}}
        return opening_of(12, keys=tuple(world.resources), settings=settings)

    @pytest.mark.parametrize("variant", [0, 1])
    def test_the_plan_of_a_bucket_says_its_variant(self, world, variant):
        tables = Tables.over(world, reads=self.reads)
        handle = world.open(self.opening(world, 0))
        tables.prompt(handle, 3)
        assert tables.step([handle], variant=variant).resident["sampler"].sampled == variant
