"""What the codec does before its convolutions: codes to features, and attention over frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.ops.functional import rms_norm
from mstar_qwen3_tts.columns.contract import Frames, Window
from mstar_qwen3_tts.convolutions import Parts
from mstar_qwen3_tts.layers import Layer, Make
from mstar_qwen3_tts.sizes import CodecConfig

LEAST_USAGE = 1e-5


class Codebooks(nn.Module):
    """Codes to features: each codebook's row, the first book and the others projected apart."""

    table: Tensor
    """``[books * size, width]``: what a code stands for, made from sums and counts at load."""
    begins: Tensor
    """Where each book begins in it."""

    def __init__(self, config: CodecConfig, make: Make) -> None:
        super().__init__()
        self.size = config.codebook_size
        rows, half = config.codebooks * config.codebook_size, config.codebook_width // 2
        self.sums = make.weight(rows, half)
        self.usage = make.weight(rows)
        self.first = make.weight(config.codebook_width, half)
        self.rest = make.weight(config.codebook_width, half)
        self.register_buffer("table", torch.empty_like(self.sums), persistent=False)
        begins = torch.empty(config.codebooks, dtype=torch.int64, device=make.device)
        self.register_buffer("begins", begins, persistent=False)

    def init_random(self, generator: torch.Generator) -> None:
        """Every code was met once."""
        self.usage.fill_(1)

    def finalize_weights(self) -> None:
        """Make the table."""
        self.table = self.sums / self.usage.clamp(min=LEAST_USAGE)[:, None]
        books = torch.arange(len(self.begins), device=self.sums.device)
        self.begins = books * self.size

    def forward(self, codes_TQ: Tensor) -> Tensor:
        """``[T, books]`` → ``[T, width]``. A code that the book does not have reads its last."""
        found_TQC = F.embedding(codes_TQ.clamp(max=self.size - 1) + self.begins, self.table)
        rest_TC = found_TQC[:, 1:].sum(1)
        return F.linear(found_TQC[:, 0], self.first) + F.linear(rest_TC, self.rest)


class Transformer(nn.Module):
    """Layers whose attention sees the last ``window`` frames."""

    def __init__(self, config: CodecConfig, parts: Parts) -> None:
        super().__init__()
        stack, make = config.stack, parts.make
        self.eps = stack.eps
        self.input_proj = make.affine(config.latent, stack.hidden)
        self.layers = nn.ModuleList(
            Layer(stack, make, normed=False, scaled=True) for _ in range(stack.layers)
        )
        self.norm = make.weight(stack.hidden)
        self.output_proj = make.affine(stack.hidden, config.latent)
        self.columns = parts.columns
        self.windows = [
            Window(size=config.window, memory_SKC=parts.memory[f"window.{i}"])
            for i in range(stack.layers)
        ]

    def init_random(self, generator: torch.Generator) -> None:
        """A norm of one."""
        self.norm.fill_(1)

    def forward(self, x_TC: Tensor, frames: Frames) -> Tensor:
        """``[T, latent]`` → the same shape."""
        x_TH = self.input_proj(x_TC)
        for layer, window in zip(self.layers, self.windows, strict=True):

            def attend(q: Tensor, k: Tensor, v: Tensor, _: Layer, over: Window = window) -> Tensor:
                return self.columns.attend(q, k, v, over, frames)

            x_TH = layer(x_TH, attend)
        projected_TC: Tensor = self.output_proj(rms_norm(x_TH, self.norm, self.eps))
        return projected_TC
