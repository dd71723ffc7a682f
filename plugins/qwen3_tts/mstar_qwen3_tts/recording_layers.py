"""The transformer's layers and the quantisers of the encoder of recordings, as published; fp32."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.ops.functional import rope_half_split
from mstar_qwen3_tts.codec_layers import LEAST_USAGE
from mstar_qwen3_tts.ear_sizes import RecordingSizes
from mstar_qwen3_tts.sizes import StackConfig


class Scale(nn.Module):
    """A factor by feature."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width, device=device), requires_grad=False)

    def init_random(self, generator: torch.Generator) -> None:
        """One."""
        self.scale.fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * self.scale


class Attention(nn.Module):
    """Heads over the columns of a recording up to each."""

    def __init__(self, stack: StackConfig, device: torch.device) -> None:
        super().__init__()
        width, own = stack.heads * stack.head_dim, stack.kv_heads * stack.head_dim
        self.head_dim = stack.head_dim
        self.q_proj = _matrix(stack.hidden, width, device)
        self.k_proj = _matrix(stack.hidden, own, device)
        self.v_proj = _matrix(stack.hidden, own, device)
        self.o_proj = _matrix(width, stack.hidden, device)

    def forward(self, x_LH: Tensor, rope: tuple[Tensor, Tensor], seen_LL: Tensor) -> Tensor:
        """The same shape."""
        q, k, v = (
            proj(x_LH).view(len(x_LH), -1, self.head_dim)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rope_half_split(q, *rope), rope_half_split(k, *rope)
        q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
        o_1NLD = F.scaled_dot_product_attention(q, k, v, attn_mask=seen_LL, enable_gqa=True)
        mixed_LH: Tensor = self.o_proj(o_1NLD[0].transpose(0, 1).flatten(1))
        return mixed_LH


class Layer(nn.Module):
    """Attention and MLP, each behind a norm and times a factor."""

    def __init__(self, stack: StackConfig, device: torch.device) -> None:
        super().__init__()
        hidden = stack.hidden
        self.input_layernorm = nn.LayerNorm(hidden, eps=stack.eps, device=device)
        self.post_attention_layernorm = nn.LayerNorm(hidden, eps=stack.eps, device=device)
        self.self_attn = Attention(stack, device)
        self.self_attn_layer_scale = Scale(hidden, device)
        inner = {"fc1": _matrix(hidden, stack.inner, device)}
        inner["fc2"] = _matrix(stack.inner, hidden, device)
        self.mlp = nn.ModuleDict(inner)
        self.mlp_layer_scale = Scale(hidden, device)

    def forward(self, x_LH: Tensor, rope: tuple[Tensor, Tensor], seen_LL: Tensor) -> Tensor:
        """The same shape."""
        mixed_LH = self.self_attn(self.input_layernorm(x_LH), rope, seen_LL)
        x_LH = x_LH + self.self_attn_layer_scale(mixed_LH)
        inner = F.gelu(self.mlp["fc1"](self.post_attention_layernorm(x_LH)))
        added_LH: Tensor = self.mlp_layer_scale(self.mlp["fc2"](inner))
        return x_LH + added_LH


class Codebook(nn.Module):
    """What each code stands for."""

    table: Tensor

    def __init__(self, sizes: RecordingSizes, device: torch.device) -> None:
        super().__init__()
        num, width = sizes.codebook_size, sizes.codebook_width
        empty = torch.empty(num, width, device=device)
        self.embed_sum = nn.Parameter(empty, requires_grad=False)
        self.cluster_usage = nn.Parameter(empty[:, 0].clone(), requires_grad=False)
        self.register_buffer("table", torch.empty_like(empty), persistent=False)

    def init_random(self, generator: torch.Generator) -> None:
        """Every code was met once."""
        self.cluster_usage.fill_(1)

    def finalize_weights(self) -> None:
        """Make the table."""
        self.table = self.embed_sum / self.cluster_usage.clamp(min=LEAST_USAGE)[:, None]

    def nearest(self, x_TC: Tensor) -> Tensor:
        """int64 ``[T]``."""
        return torch.cdist(x_TC[None], self.table[None])[0].argmin(-1)


class Quantizer(nn.Module):
    """Codes one behind the other: each of what those before it have left over."""

    def __init__(self, count: int, sizes: RecordingSizes, device: torch.device) -> None:
        super().__init__()
        shape = (sizes.stack.hidden, sizes.codebook_width, 1)
        self.input_proj = nn.Conv1d(*shape, bias=False, device=device)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"codebook": Codebook(sizes, device)}) for _ in range(count)
        )

    def forward(self, x_TH: Tensor) -> list[Tensor]:
        """One code a frame of each book."""
        left_TC, codes = x_TH @ self.input_proj.weight[..., 0].T, []
        for layer in self.layers:
            book: Codebook = layer["codebook"]  # type: ignore[index]
            codes.append(book.nearest(left_TC))
            left_TC = left_TC - book.table[codes[-1]]
        return codes


def _matrix(inputs: int, outputs: int, device: torch.device) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, device=device)
