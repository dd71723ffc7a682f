"""What the codec does before its convolutions: codes to features, and attention over frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.ops.functional import rms_norm, rope_half_split
from mstar_qwen3_tts.convolutions import Parts
from mstar_qwen3_tts.layers import Layer, Make
from mstar_qwen3_tts.packed import PackedRows, extended
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
        """``[T, books]`` → ``[width, T]``. A code that the book does not have reads its last."""
        found_TQC = F.embedding(codes_TQ.clamp(max=self.size - 1) + self.begins, self.table)
        rest_TC = found_TQC[:, 1:].sum(1)
        return (F.linear(found_TQC[:, 0], self.first) + F.linear(rest_TC, self.rest)).T


class Transformer(nn.Module):
    """Layers whose attention sees the last ``window`` frames."""

    def __init__(self, config: CodecConfig, parts: Parts) -> None:
        super().__init__()
        stack, make = config.stack, parts.make
        self.eps, self.window = stack.eps, config.window
        self.input_proj = make.affine(config.latent, stack.hidden)
        self.layers = nn.ModuleList(
            Layer(stack, make, normed=False, scaled=True) for _ in range(stack.layers)
        )
        self.norm = make.weight(stack.hidden)
        self.output_proj = make.affine(stack.hidden, config.latent)
        self.memory = [parts.memory[f"window.{i}"] for i in range(stack.layers)]

    def init_random(self, generator: torch.Generator) -> None:
        """A norm of one."""
        self.norm.fill_(1)

    def forward(
        self, x_CT: Tensor, rows: PackedRows, index_T: Tensor, rope: tuple[Tensor, Tensor]
    ) -> Tensor:
        """``[latent, T]`` → the same shape; ``index_T`` counts each row's frames from its first."""
        back_W = torch.arange(self.window - 1, -1, -1, device=index_T.device)
        seen_TW = index_T[:, None] >= back_W
        x_TH = self.input_proj(x_CT.T)
        for layer, memory in zip(self.layers, self.memory, strict=True):

            def attend(q: Tensor, k: Tensor, v: Tensor, _: Layer, kept: Tensor = memory) -> Tensor:
                q, k = rope_half_split(q, *rope), rope_half_split(k, *rope)
                both_TC = torch.cat([k.flatten(1), v.flatten(1)], -1)
                both_CE, at_T = extended(both_TC.T, kept, rows)
                around_TWC = both_CE.T.contiguous()[at_T[:, None] - back_W]
                k_TWGD, v_TWGD = around_TWC.view(*seen_TW.shape, 2, *k.shape[1:]).unbind(2)
                mixed_TN1D = F.scaled_dot_product_attention(
                    q[:, :, None],
                    k_TWGD.transpose(1, 2),
                    v_TWGD.transpose(1, 2),
                    attn_mask=seen_TW[:, None, None],
                    enable_gqa=True,
                )
                return mixed_TN1D[:, :, 0]

            x_TH = layer(x_TH, attend)
        projected_TC: Tensor = self.output_proj(rms_norm(x_TH, self.norm, self.eps))
        return projected_TC.T
