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
from mstar_qwen3_tts.blocks import DILATIONS, TAPS, ConvNext, UpBlock
from mstar_qwen3_tts.codec_layers import Codebooks, Transformer
from mstar_qwen3_tts.columns.contract import Frames
from mstar_qwen3_tts.convolutions import CausalConv, Parts, Snake, UpConv
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

    def forward(self, codes_TQ: Tensor, frames: Frames) -> Tensor:
        """``[T, books]`` → ``[T, samples]``, from -1 to 1."""
        rows = frames.rows
        x_LC = self.pre_conv(self.codebooks(codes_TQ), rows)
        x_LC = self.pre_transformer(x_LC, frames)
        for pair in self.upsample:
            up, mix = pair.children()
            x_LC = mix(up(x_LC, rows), rows)
        first, *blocks, snake, last = self.decoder
        x_LC = first(x_LC, rows)
        for block in blocks:
            x_LC = block(x_LC, rows)
        wave_L1: Tensor = last(x_LC, rows, before=snake).clamp(-1, 1)
        return wave_L1.view(len(codes_TQ), -1)


class CodecSubmodule(NodeSubmodule):
    """Walk ``voice``: ``frames`` ``[T, books]`` → ``sound`` float32 ``[T, samples]``, and whether a
    row's is ``finite``.

    Walk ``recall`` goes through the frames of a recording that the sound follows on, and tells
    nothing.
    """

    def __init__(self, config: CodecConfig, env: NodeEnv) -> None:
        super().__init__()
        self._position = env.resource("position")
        self.decoder = Decoder(config, Parts.of(env))

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        rows, position = PackedRows.of(plans["rows"], plans["memory"]), plans["position"]
        rope = self._position.rope(position)
        (codes_TQ,) = inputs.values()
        frames = Frames(rows=rows, index_T=position.index_T, rope=rope)
        sound_TL = self.decoder(codes_TQ, frames)
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
    """Per part that keeps something, by name: columns of left context, and their channels."""
    stack, width = config.stack, config.decoder_width
    found = {"pre_conv": (PRE_TAPS - 1, config.codebook_width)}
    pair = 2 * stack.kv_heads * stack.head_dim
    found |= {f"window.{i}": (config.window - 1, pair) for i in range(stack.layers)}
    for i in range(len(config.upsampling)):
        found[f"upsample.{i}.dwconv"] = (TAPS - 1, config.latent)
    found["decoder.0"] = (TAPS - 1, config.latent)
    for i in range(1, len(config.rates) + 1):
        found[f"decoder.{i}.block.1"] = (1, width)
        width //= 2
        for j, dilation in enumerate(DILATIONS, 2):
            found[f"decoder.{i}.block.{j}.conv1"] = ((TAPS - 1) * dilation, width)
    found[f"decoder.{len(config.rates) + 2}"] = (TAPS - 1, width)
    return found
