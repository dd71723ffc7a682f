"""The node ``codec``: frames of codes in, samples out, exactly as if a row came all at once.

::

    codes ─► codebooks ─► conv ─► windowed transformer ─► 2 × up ─► wave decoder ─► samples
                            └──────── each keeps its left context in the row's slot ────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mstar_core.model.base import NodeEnv, NodeSubmodule
from mstar_core.resources.base import ResourceSpec
from mstar_qwen3_tts.codec_layers import Codebooks, Transformer
from mstar_qwen3_tts.convolutions import (
    DILATIONS,
    TAPS,
    CausalConv,
    ConvNext,
    Parts,
    Snake,
    UpBlock,
    UpConv,
)
from mstar_qwen3_tts.layers import Make, exact_convolutions
from mstar_qwen3_tts.packed import PackedRows
from mstar_qwen3_tts.sizes import CodecConfig

PRE_TAPS = 3
RECALL = "recall"


class Decoder(nn.Module):
    """Frames to samples. Its parameters bear the names of the published weights."""

    def __init__(self, config: CodecConfig, parts: Parts) -> None:
        super().__init__()
        self.codebooks = Codebooks(config, parts.make)
        shape = (config.codebook_width, config.latent, PRE_TAPS)
        self.pre_conv = CausalConv("pre_conv", shape, parts)
        self.pre_transformer = Transformer(config, parts)
        self.upsample = nn.ModuleList(
            nn.ModuleList(
                [
                    UpConv("", (config.latent, config.latent, rate), parts, rate),
                    ConvNext(f"upsample.{i}", config.latent, parts),
                ]
            )
            for i, rate in enumerate(config.upsampling)
        )
        self.decoder = nn.ModuleList(_wave_decoder(config, parts))

    def forward(
        self, codes_TQ: Tensor, rows: PackedRows, index_T: Tensor, rope: tuple[Tensor, Tensor]
    ) -> Tensor:
        """``[T, books]`` → ``[T, samples]``, from -1 to 1."""
        x_CL = self.pre_conv(self.codebooks(codes_TQ), rows)
        x_CL = self.pre_transformer(x_CL, rows, index_T, rope)
        for pair in self.upsample:
            up, mix = pair.children()
            x_CL = mix(up(x_CL, rows), rows)
        first, *blocks, snake, last = self.decoder
        x_CL = first(x_CL, rows)
        for block in blocks:
            x_CL = block(x_CL, rows)
        wave_1L: Tensor = last(snake(x_CL), rows).clamp(-1, 1)
        return wave_1L.view(len(codes_TQ), -1)


class CodecSubmodule(NodeSubmodule):
    """Walk ``voice``: ``frames`` ``[T, books]`` → ``sound`` float32 ``[T, samples]``, and whether a
    row's is ``finite``.

    Walk ``recall`` goes through the frames of a recording that the sound follows on, and tells
    nothing.
    """

    def __init__(self, config: CodecConfig, env: NodeEnv) -> None:
        super().__init__()
        self._position = env.resource("position")
        parts = Parts(make=Make.of(env), memory=env.resource("memory").layer(0))
        self.decoder = Decoder(config, parts)

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        rows, position = PackedRows.of(plans["rows"], plans["memory"]), plans["position"]
        rope = self._position.rope(position)
        (codes_TQ,) = inputs.values()
        with exact_convolutions():
            sound_TL = self.decoder(codes_TQ, rows, position.index_T, rope)
        if walk == RECALL:
            return {}
        broken_T = (~sound_TL.isfinite().all(1)).long()
        broken_B = torch.zeros_like(rows.lens_B).index_add(0, rows.row_T, broken_T)
        return {"sound": sound_TL.float(), "finite": broken_B == 0}


def _wave_decoder(config: CodecConfig, parts: Parts) -> list[nn.Module]:
    width = config.decoder_width
    found: list[nn.Module] = [CausalConv("decoder.0", (config.latent, width, TAPS), parts)]
    for i, rate in enumerate(config.rates, 1):
        found.append(UpBlock(f"decoder.{i}", width, rate, parts))
        width //= 2
    last = f"decoder.{len(config.rates) + 2}"
    return [*found, Snake(width, parts.make), CausalConv(last, (width, 1, TAPS), parts)]


def codec_resources(config: CodecConfig) -> tuple[ResourceSpec, ...]:
    """The memory of every part, positions, and the layout of a step's rows."""
    stack = config.stack
    heads = {"num_kv_heads": stack.kv_heads, "head_dim": stack.head_dim}
    blocks = {name: (shape, "model") for name, shape in kept_shapes(config).items()}
    rope = {"kind": "rope", "rotary_dim": stack.head_dim, "theta": stack.theta}
    return (
        ResourceSpec(key="memory", kind="state", options={"num_layers": 1, "blocks": blocks}),
        ResourceSpec(key="position", kind="position", options=rope),
        ResourceSpec(key="rows", kind="attention", options={"num_heads": stack.heads, **heads}),
    )


def kept_shapes(config: CodecConfig) -> dict[str, tuple[int, int]]:
    """Per part that keeps something, by name: channels, and columns of left context."""
    stack, width = config.stack, config.decoder_width
    found = {"pre_conv": (config.codebook_width, PRE_TAPS - 1)}
    pair = 2 * stack.kv_heads * stack.head_dim
    found |= {f"window.{i}": (pair, config.window - 1) for i in range(stack.layers)}
    for i in range(len(config.upsampling)):
        found[f"upsample.{i}.dwconv"] = (config.latent, TAPS - 1)
    found["decoder.0"] = (config.latent, TAPS - 1)
    for i in range(1, len(config.rates) + 1):
        found[f"decoder.{i}.block.1"] = (width, 1)
        width //= 2
        for j, dilation in enumerate(DILATIONS, 2):
            found[f"decoder.{i}.block.{j}.conv1"] = (width, (TAPS - 1) * dilation)
    found[f"decoder.{len(config.rates) + 2}"] = (width, TAPS - 1)
    return found
