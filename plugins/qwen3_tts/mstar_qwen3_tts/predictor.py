"""The code predictor: the codes of a frame beside the first, one by one within a step.

::

    talker's hidden ─► pass 0
    first code ──────► pass 1 ─► code 1 ─► pass 2 ─► code 2 … ─► code 15

A pass is a decode step of one more place for every row. Keys and values live in the step alone:
each row has one page of a fixed scratch, with a place for every code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.model.base import NodeEnv
from mstar_core.ops.functional import rope_angles
from mstar_core.ops.paged_attention import AttentionStep, PagedAttention
from mstar_core.ops.sampling import Sampling
from mstar_core.resources.attention import AttentionPlan
from mstar_qwen3_tts.config import TtsConfig
from mstar_qwen3_tts.layers import Layer, Make


class Scratch(nn.Module):
    """Pages for the rows of a step, and what each pass may read of them; row i has page i + 1."""

    pools: Tensor
    """``[layers, 2, 1 + rows, places, kv heads, head_dim]``: keys and values."""
    lens_PR: Tensor
    before_PR: Tensor
    write_PR: Tensor
    order_R: Tensor
    zeros_R: Tensor
    pages_R1: Tensor
    turns: Tensor
    """``[2, places, rows, head_dim]``: cosine and sine of each place."""

    def __init__(self, config: TtsConfig, make: Make, rows: int) -> None:
        """``rows``: of a step, at most."""
        super().__init__()
        sizes, self.places, self.rows = config.predictor, config.code_groups, rows
        self.theta = sizes.theta
        head = (sizes.kv_heads, sizes.head_dim)
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "pools": ((sizes.layers, 2, 1 + rows, self.places, *head), make.dtype),
            "lens_PR": ((self.places, rows), torch.int32),
            "before_PR": ((self.places, rows), torch.int32),
            "write_PR": ((self.places, rows), torch.int64),
            "order_R": ((rows,), torch.int32),
            "zeros_R": ((rows,), torch.int32),
            "pages_R1": ((rows, 1), torch.int32),
            "turns": ((2, self.places, rows, sizes.head_dim), torch.float32),
        }
        for name, (shape, dtype) in shapes.items():
            empty = torch.empty(shape, dtype=dtype, device=make.device)
            self.register_buffer(name, empty, persistent=False)

    def fill(self, device: torch.device) -> None:
        """Give every buffer its memory and its values."""
        places, rows = torch.arange(self.places), torch.arange(self.rows)
        before_PR = places[:, None].expand(-1, self.rows)
        found = {
            "pools": torch.zeros(self.pools.shape, dtype=self.pools.dtype, device=device),
            "lens_PR": before_PR + 1,
            "before_PR": before_PR,
            "write_PR": (rows + 1) * self.places + before_PR,
            "order_R": rows,
            "zeros_R": torch.zeros_like(rows),
            "pages_R1": rows[:, None] + 1,
        }
        angles = rope_angles(places, self.turns.shape[-1], self.theta)
        found["turns"] = torch.stack(angles)[:, :, None].expand(self.turns.shape)
        for name, value in found.items():
            dtype = getattr(self, name).dtype
            setattr(self, name, value.to(device=device, dtype=dtype).contiguous())

    def plan(self, place: int, rows: int) -> AttentionPlan:
        """Every row writes its place and reads all up to it."""
        order_B = self.order_R[:rows]
        return AttentionPlan(
            pages_BW=self.pages_R1[:rows],
            kv_lens_B=self.lens_PR[place, :rows],
            before_B=self.before_PR[place, :rows],
            q_starts_B=order_B,
            q_lens_B=self.lens_PR[0, :rows],
            row_T=order_B,
            col_T=self.zeros_R[:rows],
            write_T=self.write_PR[place, :rows],
            max_q=1,
            decode=1,
        )

    def rope(self, place: int, rows: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine, ``[rows, head_dim]`` each."""
        return self.turns[0, place, :rows], self.turns[1, place, :rows]


class CodePredictor(nn.Module):
    """A small causal stack over the codes of one frame."""

    begins: Tensor
    """Where the table of each code begins."""

    def __init__(self, config: TtsConfig, make: Make, env: NodeEnv, rows: int) -> None:
        """``rows``: of a step, at most."""
        super().__init__()
        sizes = config.predictor
        self.sizes, self.linear = sizes, make.linear
        self.later, self.vocab = config.code_groups - 1, config.predictor_vocab
        self.sampling: Sampling = env.bind("sampling", {"vocab_size": self.vocab})
        geometry = {
            "num_heads": sizes.heads,
            "num_kv_heads": sizes.kv_heads,
            "head_dim": sizes.head_dim,
            "page_tokens": config.code_groups,
        }
        self.attention: PagedAttention = env.bind("paged_attention", geometry)
        self.scratch = Scratch(config, make, rows)
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
        begins = torch.empty(self.later, dtype=torch.int64, device=make.device)
        self.register_buffer("begins", begins, persistent=False)

    def init_random(self, generator: torch.Generator) -> None:
        """A norm of one."""
        self.norm.fill_(1)

    def finalize_weights(self) -> None:
        """Make the scratch, and say where each table begins."""
        self.scratch.fill(self.norm.device)
        self.begins = torch.arange(self.later, device=self.norm.device) * self.vocab

    def embed(self, codes_TQ: Tensor) -> Tensor:
        """Codes 1, 2, … ``[T, 15]`` → the sum of their embeddings, ``[T, hidden]``."""
        return F.embedding(codes_TQ + self.begins, self.tables).sum(1)

    def forward(self, hidden_BH: Tensor, first_BH: Tensor, plan: Any) -> Tensor:
        """The codes 1, 2, … of a frame, int64 ``[B, 15]``.

        ``hidden_BH`` is what the talker sampled code 0 from, ``first_BH`` that code's embedding;
        ``plan`` is the sampler's: the codes are drawn by the settings of the row.
        """
        self._run(hidden_BH, 0)
        x_BH, codes = first_BH, list[Tensor]()
        heads, tables = self.heads.split(self.vocab), self.tables.split(self.vocab)
        for i, head_VH in enumerate(heads):
            if i:
                x_BH = F.embedding(codes[-1], tables[i - 1])
            last_BH = self._run(x_BH, i + 1)
            logits_BV = self.linear.norm_linear(last_BH, self.norm, head_VH, eps=self.sizes.eps)
            codes.append(self.sampling.sample(logits_BV, plan, draw=i + 1).ids_B)
        return torch.stack(codes, 1)

    def _run(self, x_BH: Tensor, place: int) -> Tensor:
        """One more place of every row → its hidden state, ``[B, width]``."""
        rows, scale = len(x_BH), self.sizes.head_dim**-0.5
        plan, rope = self.scratch.plan(place, rows), self.scratch.rope(place, rows)
        if self.narrow is not None:
            x_BH = self.linear.linear(x_BH, self.narrow, self.narrow_bias)
        for layer, (keys, values) in zip(self.layers, self.scratch.pools, strict=True):

            def attend(
                q: Tensor, k: Tensor, v: Tensor, own: Layer, pools: Any = (keys, values)
            ) -> Tensor:
                step = AttentionStep(
                    scale=scale, q_norm_D=own.q_norm, k_norm_D=own.k_norm, eps=own.eps, rope=rope
                )
                return self.attention.step(q, k, v, pools, plan, step)

            x_BH = layer(x_BH, attend)
        return x_BH
