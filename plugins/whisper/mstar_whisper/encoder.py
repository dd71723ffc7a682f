"""The encoder: mel windows in, one row of features per 20 ms out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.model.base import NodeEnv, NodeSubmodule
from mstar_core.step import Plan
from mstar_whisper.config import FRAMES_PER_POSITION, WhisperConfig
from mstar_whisper.layers import Layer, by_head, conv, embedding, layer_norm

FP16_LIMIT = 64_504.0
"""What the model's authors keep half-precision activations under: the largest less 1000."""


class EncoderLayer(Layer):
    """Attention over a whole window, then a feed-forward block, both on normalised input."""

    def __init__(self, config: WhisperConfig, env: NodeEnv) -> None:
        super().__init__(config.width, config.encoder_ffn, env)
        self.heads = config.encoder_heads

    def forward(self, x_BTH: Tensor) -> Tensor:
        """``[windows, positions, width]`` → the same shape."""
        normed = self.self_attn_layer_norm(x_BTH)
        q, k, v = (by_head(u, self.heads).transpose(1, 2) for u in self.qkv(normed))
        o_BNTD = F.scaled_dot_product_attention(q, k, v)
        x_BTH = x_BTH + self.out_proj(o_BNTD.transpose(1, 2).flatten(2))
        x_BTH = self.feed_forward(x_BTH)
        if x_BTH.dtype == torch.float16:
            x_BTH = x_BTH.clamp(-FP16_LIMIT, FP16_LIMIT)
        return x_BTH


class Encoder(NodeSubmodule):
    """Node ``encoder``. Walk ``encode``: ``mel`` ``[windows, bins, frames]`` → ``frames``."""

    def __init__(self, config: WhisperConfig, env: NodeEnv) -> None:
        super().__init__()
        width = config.width
        self.conv1 = conv(config.mel_bins, width, 1, env)
        self.conv2 = conv(width, width, FRAMES_PER_POSITION, env)
        self.embed_positions = embedding(config.source_positions, width, env)
        self.layers = nn.ModuleList(EncoderLayer(config, env) for _ in range(config.encoder_layers))
        self.layer_norm = layer_norm(width, env)

    def declare_step(self, walk: str, spans_B: np.ndarray) -> Mapping[str, np.ndarray]:
        """A window is encoded at once: nothing is kept for a request."""
        return {}

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        """``frames``: ``[windows, positions, width]``."""
        mel_BCT = inputs["mel"].to(self.conv1.weight.dtype)
        x_BHT = F.gelu(self.conv2(F.gelu(self.conv1(mel_BCT))))
        # a sum keeps the order of its terms in memory, which all layers would be slow with
        x_BTH = x_BHT.transpose(1, 2).contiguous() + self.embed_positions.weight
        for layer in self.layers:
            x_BTH = layer(x_BTH)
        return {"frames": self.layer_norm(x_BTH)}
