"""The code predictor: the codes of a frame beside the first, one by one within a step.

::

    talker's hidden ─┐
    first code ──────┴─► pass 1 ─► code 1 ─► pass 2 ─► code 2 … ─► code 15

Its keys and values live in the step alone: a fixed scratch of one place per code, for each row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.ops.functional import rms_norm, rope_half_split
from mstar_core.ops.sampling import Sampling
from mstar_qwen3_tts.config import TtsConfig
from mstar_qwen3_tts.layers import Attend, Layer, Make


class CodePredictor(nn.Module):
    """A small causal stack over the codes of one frame."""

    angle_PD: Tensor
    """Radians by place and feature."""
    begins: Tensor
    """Where the table of each code begins."""
    scratch: Tensor
    """``[layers, 2, rows, kv heads, places, head_dim]``: keys and values of the step under way."""

    def __init__(self, config: TtsConfig, make: Make, ops: Sampling, rows: int) -> None:
        """``rows``: of a step, at most."""
        super().__init__()
        sizes = config.predictor
        self.sizes, self.ops, self.linear = sizes, ops, make.linear
        self.later, self.vocab = config.code_groups - 1, config.predictor_vocab
        self.tables = make.weight(self.later * self.vocab, config.talker.hidden)
        """Embeddings of codes 1, 2, …, one table behind the other."""
        narrows = config.talker.hidden != sizes.hidden
        self.narrow = make.weight(sizes.hidden, config.talker.hidden) if narrows else None
        self.narrow_bias = make.weight(sizes.hidden) if narrows else None
        self.layers = nn.ModuleList(
            Layer(sizes, make, normed=True, scaled=False) for _ in range(sizes.layers)
        )
        self.norm = make.weight(sizes.hidden)
        self.heads = make.weight(self.later * self.vocab, sizes.hidden)
        """Heads of codes 1, 2, …, one behind the other."""
        angles = torch.empty(
            config.code_groups, sizes.head_dim, device=make.device, dtype=torch.float32
        )
        self.register_buffer("angle_PD", angles, persistent=False)
        shape = (sizes.layers, 2, rows, sizes.kv_heads, config.code_groups, sizes.head_dim)
        scratch = torch.empty(shape, device=make.device, dtype=make.dtype)
        self.register_buffer("scratch", scratch, persistent=False)
        begins = torch.empty(self.later, dtype=torch.int64, device=make.device)
        self.register_buffer("begins", begins, persistent=False)

    def init_random(self, generator: torch.Generator) -> None:
        """A norm of one."""
        self.norm.fill_(1)

    def finalize_weights(self) -> None:
        """Make the angles of every place, where each table begins, and the scratch."""
        device, half = self.norm.device, torch.arange(0, self.sizes.head_dim, 2).float()
        turn = 1.0 / self.sizes.theta ** (half / self.sizes.head_dim)
        places = torch.arange(len(self.angle_PD)).float()
        self.angle_PD = torch.outer(places, torch.cat([turn, turn])).to(device)
        self.begins = torch.arange(self.later, device=device) * self.vocab
        self.scratch = torch.empty_like(self.scratch, device=device)

    def embed(self, codes_TQ: Tensor) -> Tensor:
        """Codes 1, 2, … ``[T, 15]`` → the sum of their embeddings, ``[T, hidden]``."""
        return F.embedding(codes_TQ + self.begins, self.tables).sum(1)

    def forward(self, hidden_BH: Tensor, first_BH: Tensor, plan: Any) -> Tensor:
        """The codes 1, 2, … of a frame, int64 ``[B, 15]``.

        ``hidden_BH`` is what the talker sampled code 0 from, ``first_BH`` that code's embedding;
        ``plan`` is the sampler's: the codes are drawn by the settings of the row.
        """
        scratch = self.scratch[:, :, : len(hidden_BH)]
        x_BPH, codes = torch.stack([hidden_BH, first_BH], 1), list[Tensor]()
        for i in range(self.later):
            last_BH = self._run(x_BPH, 0 if i == 0 else i + 1, scratch)
            head_VH = self.heads[i * self.vocab : (i + 1) * self.vocab]
            codes.append(self.ops.head_sample(last_BH, head_VH, plan, draw=i + 1).ids_B)
            if i + 1 < self.later:
                x_BPH = F.embedding(codes[-1] + i * self.vocab, self.tables)[:, None]
        return torch.stack(codes, 1)

    def _run(self, x_BPH: Tensor, at: int, scratch: Tensor) -> Tensor:
        """Places from ``at`` on → the normed hidden state of the last, ``[B, width]``."""
        B, P, _ = x_BPH.shape
        x_TH = x_BPH.flatten(0, 1)
        if self.narrow is not None:
            x_TH = self.linear.linear(x_TH, self.narrow, self.narrow_bias)
        for layer, kept in zip(self.layers, scratch, strict=True):
            x_TH = layer(x_TH, self._attend(kept, at, P))
        last_BH = x_TH.view(B, P, -1)[:, -1]
        return rms_norm(last_BH, self.norm, self.sizes.eps)

    def _attend(self, kept: Tensor, at: int, places: int) -> Attend:
        """Attention of ``places`` new places per row over those before them."""
        stop = at + places
        angle = self.angle_PD[at:stop].repeat(kept.shape[1], 1)
        rope, eps = (angle.cos(), angle.sin()), self.sizes.eps

        def attend(q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor, layer: Layer) -> Tensor:
            norms = (layer.q_norm, layer.k_norm)
            q_TND, k_TGD = (
                rope_half_split(rms_norm(x, norm, eps), *rope)  # type: ignore[arg-type]
                for x, norm in zip((q_TND, k_TGD), norms, strict=True)
            )
            q_BNPD, k_BGPD, v_BGPD = (
                x.view(-1, places, *x.shape[1:]).transpose(1, 2) for x in (q_TND, k_TGD, v_TGD)
            )
            kept[0, :, :, at:stop], kept[1, :, :, at:stop] = k_BGPD, v_BGPD
            o_BNPD = F.scaled_dot_product_attention(
                q_BNPD,
                kept[0, :, :, :stop],
                kept[1, :, :, :stop],
                is_causal=places > 1,
                enable_gqa=True,
            )
            return o_BNPD.transpose(1, 2).flatten(0, 1)

        return attend
