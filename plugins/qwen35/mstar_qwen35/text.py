"""The compute of the node ``text``: embeddings, hybrid layers, head, sampler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from torch import Tensor, nn

from mstar_core.model.base import NodeEnv, NodeSubmodule
from mstar_core.ops.taking import taking_for
from mstar_core.step import Plan
from mstar_qwen35.config import FULL, LINEAR, Qwen35Config
from mstar_qwen35.layers import MLP, FullAttention, Head, Layer, LinearAttention, Make


class TextSubmodule(NodeSubmodule):
    """Token ids ``[T]`` → the next id of every row, its log probability, whether all was finite."""

    def __init__(self, config: Qwen35Config, env: NodeEnv) -> None:
        super().__init__()
        linear = env.bind("linear", {})
        make = Make(device=env.device, dtype=env.dtype, linear=linear)
        self._position = env.resource("position")
        self._sampler = env.resource("sampler")
        self.embed = make.weight(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_layers(config, env, make))
        shape = self.embed.shape
        self.head = Head(config, make, self.embed if config.tied else make.weight(*shape))

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        rope = self._position.rope(plans["position"])
        x_TH = taking_for(self.embed.device)(self.embed, inputs["ids"])
        for layer in self.layers:
            x_TH = layer(x_TH, plans, rope)
        x_BH = self._sampler.last(x_TH, plans["sampler"])
        sampled = self._sampler.sample(self.head(x_BH), plans["sampler"])
        outputs = {"ids": sampled.ids_B, "logprob": sampled.logprob_B, "finite": sampled.finite_B}
        if sampled.top_ids_BK is not None:
            outputs |= {"top_ids": sampled.top_ids_BK, "top_logprobs": sampled.top_logprobs_BK}
        return outputs

    def resident_walks(self) -> frozenset[str]:
        return frozenset({"decode"})


def _layers(config: Qwen35Config, env: NodeEnv, make: Make) -> Iterator[Layer]:
    attention, delta = env.resource("attention"), env.resource("gated_delta")
    seen = {kind: count() for kind in (FULL, LINEAR)}
    for kind in config.layer_types:
        index = next(seen[kind])
        if kind == FULL:
            mixer: nn.Module = FullAttention(config, make, attention.layer(index))
        else:
            mixer = LinearAttention(config, make, delta.layer(index))
        yield Layer(mixer, MLP(config, make))
