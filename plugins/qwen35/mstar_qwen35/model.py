"""Qwen3.5, dense: one node, a prompt walk, a decode walk, and one that combines both."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from mstar_core.config.sampling import MAX_LOGPROBS
from mstar_core.model.base import Model, NodeEnv, NodeSubmodule
from mstar_core.model.walks import Input, Loop, Node, Once, Output, Sequence, Walk
from mstar_core.resources.base import ResourceSpec
from mstar_qwen35.config import Qwen35Config, read_config
from mstar_qwen35.front import Qwen35Front, tokenizer_size
from mstar_qwen35.text import TextSubmodule
from mstar_qwen35.weights import weight_map

if TYPE_CHECKING:
    from mstar_core.model.weights import WeightMap

_OUTPUTS = (
    Output(name="ids", read=True, loops_to="ids"),
    Output(name="logprob", read=True),
    Output(name="finite", read=True),
    Output(name="top_ids", read=True, shape=(MAX_LOGPROBS,)),
    Output(name="top_logprobs", read=True, shape=(MAX_LOGPROBS,)),
)
"""The last two are there only in a step with a row that asked for them, and as wide as the row
that asked for most."""


class Qwen35(Model):
    """The text model of a dense Qwen3.5 checkpoint; its vision tower is set aside."""

    def __init__(self, folder: Path, config: Qwen35Config) -> None:
        self.folder = folder
        self.config = config

    @classmethod
    def open(cls, folder: Path, options: Any) -> Self:
        return cls(folder, read_config(folder))

    def nodes(self) -> tuple[Node, ...]:
        ids = Input(name="ids", below=self.config.vocab_size, loops=True)
        prefill = Walk(
            name="prefill",
            node="text",
            feed="prompt",
            inputs=(ids,),
            outputs=_OUTPUTS,
            samples=True,
            chunkable=True,
        )
        decode = Walk(
            name="decode",
            node="text",
            feed="loop",
            inputs=(ids,),
            outputs=_OUTPUTS,
            samples=True,
        )
        mixed = Walk(
            name="mixed",
            node="text",
            feed="rows",
            inputs=(ids,),
            outputs=_OUTPUTS,
            samples=True,
            combines=("decode", "prefill"),
        )
        resources = _resources(self.config, tokenizer_size(self.folder))
        return (Node(name="text", walks=(prefill, decode, mixed), resources=resources),)

    def graph(self) -> Sequence:
        return Sequence((Once("prefill"), Loop("decode")))

    @property
    def max_context(self) -> int:
        return self.config.max_context

    def default_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.config.dtype)
        return dtype

    def build_submodule(self, node: str, env: NodeEnv) -> NodeSubmodule:
        return TextSubmodule(self.config, env)

    def weight_map(self, node: str) -> WeightMap:
        return weight_map(self.config)

    def run_again(
        self, arrays: Mapping[str, np.ndarray], tokens: Listed[int]
    ) -> Mapping[str, np.ndarray]:
        return {"ids": np.concatenate([arrays["ids"], np.asarray(tokens, np.int64)])}

    def front(self) -> Qwen35Front:
        return Qwen35Front(self.folder, self.config)


def _resources(config: Qwen35Config, valid_vocab: int | None) -> tuple[ResourceSpec, ...]:
    rope = config.rope
    window = (config.conv_channels, config.conv_taps - 1)
    state = (config.num_v_heads, config.k_dim, config.v_dim)
    kv_heads = {"num_kv_heads": config.num_kv_heads}
    return (
        ResourceSpec(
            key="kv",
            kind="kv",
            options={"num_layers": config.num_full, "head_dim": config.head_dim, **kv_heads},
        ),
        ResourceSpec(
            key="attention",
            kind="attention",
            options={"num_heads": config.num_heads, "head_dim": config.head_dim, **kv_heads},
            depends_on={"kv": "kv"},
        ),
        ResourceSpec(
            key="position",
            kind="position",
            options={
                "kind": "mrope" if rope.sections else "rope",
                "rotary_dim": rope.rotary_dim,
                "theta": rope.theta,
                "sections": rope.sections,
                "interleaved": rope.interleaved,
            },
        ),
        ResourceSpec(
            key="state",
            kind="state",
            options={
                "num_layers": config.num_linear,
                "blocks": {"conv": (window, "model"), "ssm": (state, torch.float32)},
            },
        ),
        ResourceSpec(
            key="gated_delta",
            kind="gated_delta",
            options={
                "num_k_heads": config.num_k_heads,
                "num_v_heads": config.num_v_heads,
                "k_dim": config.k_dim,
                "v_dim": config.v_dim,
                "conv_taps": config.conv_taps,
                "activation": "silu",
            },
            depends_on={"state": "state"},
        ),
        ResourceSpec(
            key="sampler",
            kind="sampler",
            options={"vocab_size": config.vocab_size, "valid_vocab": valid_vocab},
            depends_on={"carry": "carry"},
        ),
    )
