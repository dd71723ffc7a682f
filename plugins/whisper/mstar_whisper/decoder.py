"""The decoder: a causal transformer that also reads one window of encoder features.

::

    cross     frames of a window → keys and values of every layer → pool ``cross_kv``
    align     prompt and answer ─┐
    prefill   prompt             ├→ own stream in pool ``kv``; ``cross_kv`` is read, never added to
    decode    last token        ─┘
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.model.base import NodeEnv, NodeSubmodule
from mstar_core.step import Plan
from mstar_whisper.aligning import Alignment
from mstar_whisper.config import WhisperConfig
from mstar_whisper.judging import FIRST_POSITIONS, NO_SPEECH
from mstar_whisper.layers import Layer, Packed, by_head, embedding, head, layer_norm, linear

CROSS, ALIGN, DECODE = "cross", "align", "decode"


class Listening(nn.Module):
    """The products of an attention over a window."""

    def __init__(self, width: int, env: NodeEnv) -> None:
        super().__init__()
        self.q_proj = linear(width, width, env)
        self.kv = Packed(width, 2, env)
        self.out_proj = linear(width, width, env)


class DecoderLayer(Layer):
    """Attention over the row's own tokens, over its window, and a feed-forward block."""

    def __init__(self, config: WhisperConfig, env: NodeEnv, index: int) -> None:
        super().__init__(config.width, config.decoder_ffn, env)
        self.heads = config.decoder_heads
        self.encoder_attn = Listening(config.width, env)
        self.encoder_attn_layer_norm = layer_norm(config.width, env)
        self.aligning = tuple(head for layer, head in config.alignment_heads if layer == index)
        self._median_width = config.median_width
        self._own = env.resource("attention").layer(index)
        self._window = env.resource("cross_attention").layer(index)
        self._write_window = env.resource("cross_kv").writer(index)

    def forward(
        self, x_TH: Tensor, plans: Mapping[str, Plan], alignment: Alignment | None = None
    ) -> Tensor:
        """Packed tokens ``[T, width]`` → the same shape; ``alignment`` is told of its heads."""
        normed = self.self_attn_layer_norm(x_TH)
        q_TND, k_TND, v_TND = (by_head(u, self.heads) for u in self.qkv(normed))
        o_TND = self._own.step(q_TND, k_TND, v_TND, plans["attention"])
        x_TH = x_TH + self.out_proj(o_TND.flatten(1))
        q_TND = by_head(self.encoder_attn.q_proj(self.encoder_attn_layer_norm(x_TH)), self.heads)
        if alignment is not None and self.aligning:
            k_PpGD, scale = self._window.pools[0], self._window.scale
            alignment.add(q_TND, k_PpGD, self.aligning, scale, self._median_width)
        o_TND = self._window.step(q_TND, None, None, plans["cross_attention"])
        x_TH = x_TH + self.encoder_attn.out_proj(o_TND.flatten(1))
        return self.feed_forward(x_TH)

    def hear(self, frames_TH: Tensor, plan: Plan) -> None:
        """Write the keys and values of packed encoder features ``[T, width]``."""
        k_TND, v_TND = (by_head(u, self.heads) for u in self.encoder_attn.kv(frames_TH))
        self._write_window(k_TND, v_TND, plan)


class Decoder(NodeSubmodule):
    """Node ``decoder`` with its walks ``cross``, ``align``, ``prefill`` and ``decode``."""

    def __init__(self, config: WhisperConfig, env: NodeEnv) -> None:
        super().__init__()
        self.source_positions = config.source_positions
        self.target_positions = config.target_positions
        self.tokens = config.tokens
        self.embed_tokens = embedding(config.vocab_size, config.width, env)
        self.embed_positions = embedding(config.target_positions, config.width, env)
        self.layers = nn.ModuleList(
            DecoderLayer(config, env, index) for index in range(config.decoder_layers)
        )
        self.layer_norm = layer_norm(config.width, env)
        self._sampler = env.resource("sampler")

    def declare_step(self, walk: str, spans_B: np.ndarray) -> Mapping[str, np.ndarray]:
        """A window adds all its positions to ``cross_kv``; a token adds nothing to it."""
        if walk == CROSS:
            return {"cross_kv": spans_B * self.source_positions}
        own = dict.fromkeys(("kv", "attention", "cross_attention", "position"), spans_B)
        samples = {} if walk == ALIGN else {"sampler": spans_B}
        return {**own, **samples, "cross_kv": np.zeros_like(spans_B)}

    def resident_walks(self) -> frozenset[str]:
        return frozenset({DECODE})

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """``prefill`` and ``decode`` return ``ids``, ``logprob`` and ``finite``, ``[rows]``.

        ``prefill`` returns ``no_speech_prob`` too, NaN for a row without the start of a transcript.
        ``align`` returns ``first_positions``, ``[rows, target positions]``: of the tokens that are
        aligned, −1 behind the last. ``cross`` returns nothing.
        """
        if walk == CROSS:
            frames_TH = inputs["frames"].flatten(0, 1)
            for layer in self.layers:
                layer.hear(frames_TH, plans["cross_kv"])  # type: ignore[operator]
            return {}
        if walk == ALIGN:
            return {FIRST_POSITIONS: self._align(inputs["said"], inputs["within"], plans)}
        ids_T, plan = inputs["ids"], plans["sampler"]
        x_TH = self.hidden(ids_T, plans)
        sampled = self._sampler.sample(self._head(self._sampler.last(x_TH, plan)), plan)
        out = {"ids": sampled.ids_B, "logprob": sampled.logprob_B, "finite": sampled.finite_B}
        return out if walk == DECODE else out | {NO_SPEECH: self._no_speech(ids_T, x_TH, plan)}

    def logits(self, ids_T: Tensor, plans: Mapping[str, Any]) -> Tensor:
        """Packed token ids ``[T]`` → ``[rows, vocabulary]`` behind each row's last token."""
        return self._head(self._sampler.last(self.hidden(ids_T, plans), plans["sampler"]))

    def hidden(
        self, ids_T: Tensor, plans: Mapping[str, Any], alignment: Alignment | None = None
    ) -> Tensor:
        """Packed token ids ``[T]`` → ``[T, width]`` behind the last layer."""
        x_TH: Tensor = self.embed_tokens(ids_T) + self.embed_positions(plans["position"].index_T)
        for layer in self.layers:
            x_TH = layer(x_TH, plans, alignment)
        return x_TH

    def _align(self, ids_T: Tensor, within_T: Tensor, plans: Mapping[str, Any]) -> Tensor:
        alignment = Alignment(within_T, plans["cross_attention"], self.source_positions)
        self.hidden(ids_T, plans, alignment)
        first_BM = alignment.first_positions().float()
        return F.pad(first_BM, (0, self.target_positions - first_BM.shape[1]), value=-1.0)

    def _head(self, x_BH: Tensor) -> Tensor:
        return head(self.layer_norm(x_BH), self.embed_tokens.weight)

    def _no_speech(self, ids_T: Tensor, x_TH: Tensor, plan: Any) -> Tensor:
        """float32 ``[rows]``: how likely silence is behind each row's start of a transcript."""
        at_T = torch.arange(len(ids_T), device=ids_T.device)
        latest_T = torch.where(ids_T == self.tokens.sot, at_T, -1).cummax(0).values
        start_B = latest_T[plan.last_B]
        before_B = plan.last_B.roll(1)
        before_B[:1].fill_(-1)
        logits_BV = self._head(x_TH[start_B.clamp_min(0)]).float()
        silence_B = logits_BV[:, self.tokens.no_speech] - logits_BV.logsumexp(-1)
        return torch.where(start_B > before_B, silence_B.exp(), torch.nan)
