"""Every resource of the core keeps the contract of resources."""

import torch

from mstar_core.config.sampling import SamplingSettings
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.gated_delta import GatedDeltaResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.position import PositionResource
from mstar_core.resources.sampler import SamplerResource, SuppressRule
from mstar_core.resources.state import StateResource
from mstar_core.testing.resources import ResourceContract, decode_lease, opening_of, prefill_lease

KV = {"num_layers": 2, "num_kv_heads": 1, "head_dim": 4}
HEADS = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4}
GDN = {"num_k_heads": 1, "num_v_heads": 2, "k_dim": 4, "v_dim": 3, "conv_taps": 4}
BLOCKS = {"conv": ((14, 3), "model"), "ssm": ((2, 4, 3), torch.float32)}
CARRY = {"tensors": {"ids": ((), torch.int64, 0), "hidden": ((4,), "model", 0)}}


class TestKVKeepsTheContract(ResourceContract):
    key = "kv"
    stream_fields = ("write_T",)

    def build(self, world):
        world.build(KVResource, "kv", KV, {"page_tokens": 8})


class TestASmallKVKeepsTheContract(ResourceContract):
    """Two requests fill the pool, so admission and fences decide."""

    key = "kv"
    stream_fields = ("write_T",)

    def build(self, world):
        world.build(KVResource, "kv", KV, {"page_tokens": 8, "num_pages": 4})


class TestAttentionKeepsTheContract(ResourceContract):
    key = "attention"
    stream_fields = ("write_T",)

    def build(self, world):
        world.build(KVResource, "kv", KV, {"page_tokens": 8})
        world.build(AttentionResource, "attention", HEADS, depends_on={"kv": "kv"})


class TestRaggedAttentionKeepsTheContract(ResourceContract):
    key = "attention"

    def build(self, world):
        world.build(AttentionResource, "attention", HEADS)


class TestPositionKeepsTheContract(ResourceContract):
    key = "position"
    stream_fields = ("index_T", "offset_T")

    def build(self, world):
        world.build(PositionResource, "position", {"rotary_dim": 4})

    def opening(self, world, number):
        return opening_of(keys=("position",), settings={"position": {"offset": -2}})


class TestStateKeepsTheContract(ResourceContract):
    key = "state"

    def build(self, world):
        world.build(StateResource, "state", {"num_layers": 2, "blocks": BLOCKS})


class TestGatedDeltaKeepsTheContract(ResourceContract):
    key = "gated_delta"

    def build(self, world):
        world.build(StateResource, "state", {"num_layers": 2, "blocks": BLOCKS})
        world.build(GatedDeltaResource, "gated_delta", GDN, depends_on={"state": "state"})


class TestCarryKeepsTheContract(ResourceContract):
    key = "carry"

    def build(self, world):
        world.build(CarryResource, "carry", CARRY)


class TestSamplerKeepsTheContract(ResourceContract):
    key = "sampler"

    def build(self, world):
        world.build(CarryResource, "carry", CARRY)
        rules = (SuppressRule([1], [2]),)
        options = {"vocab_size": 16, "valid_vocab": 12, "rules": rules}
        world.build(SamplerResource, "sampler", options, {"penalty_rows": 2})


class TestAPenalisingSamplerKeepsTheContract(TestSamplerKeepsTheContract):
    """Every request holds one of two penalty rows, so they run out before the carry rows."""

    def opening(self, world, number):
        settings = SamplingSettings(
            temperature=0.5, seed=number, frequency_penalty=1.0, logit_bias={3: 5.0}, logprobs=2
        )
        return opening_of(settings={"sampler": settings}, prompt_ids=[1, 2, number])

    def leases(self):
        return decode_lease(4, variant=7), prefill_lease(4, 40, variant=7)
