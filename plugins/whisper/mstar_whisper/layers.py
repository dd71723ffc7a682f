"""What encoder and decoder layers share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.model.base import NodeEnv

EPS = 1e-5


def layer_norm(width: int, env: NodeEnv) -> nn.LayerNorm:
    """A layer norm over ``width`` features."""
    return nn.LayerNorm(width, eps=EPS, device=env.device, dtype=env.dtype)


def linear(inputs: int, outputs: int, env: NodeEnv) -> nn.Linear:
    """A linear layer on the node's device, in its dtype."""
    return nn.Linear(inputs, outputs, device=env.device, dtype=env.dtype)


def embedding(rows: int, width: int, env: NodeEnv) -> nn.Embedding:
    """A table of ``rows`` feature rows."""
    return nn.Embedding(rows, width, device=env.device, dtype=env.dtype)


def conv(inputs: int, outputs: int, stride: int, env: NodeEnv) -> nn.Conv1d:
    """A convolution over time, three taps wide, as long as its input divided by ``stride``."""
    return nn.Conv1d(
        inputs, outputs, 3, stride=stride, padding=1, device=env.device, dtype=env.dtype
    )


def by_head(x: Tensor, heads: int) -> Tensor:
    """``[..., width]`` → ``[..., heads, width / heads]``."""
    return x.view(*x.shape[:-1], heads, -1)


def head(x_BH: Tensor, weight_VH: Tensor) -> Tensor:
    """``x_BH @ weight_VH.T``: ``[rows, vocabulary]``.

    On a CPU as a few products side by side: torch's one of few rows and a table takes two to four
    times as long, on one core.
    """
    if weight_VH.device.type != "cpu":
        return F.linear(x_BH, weight_VH)
    vocab, width = weight_VH.shape
    parts = next((n for n in range(2, 9) if vocab % n == 0), 1)
    x_pHB = x_BH.T.expand(parts, width, len(x_BH))
    return torch.bmm(weight_VH.view(parts, -1, width), x_pHB).flatten(0, 1).T.contiguous()


class Packed(nn.Module):
    """Queries, keys and values by one product, or keys and values alone; keys have no bias."""

    bias: Tensor | None

    def __init__(self, width: int, parts: int, env: NodeEnv) -> None:
        super().__init__()
        weight = torch.empty(parts * width, width, device=env.device, dtype=env.dtype)
        self.weight = nn.Parameter(weight)
        self.biases = nn.Parameter(weight.new_empty((parts - 1) * width))
        """Of all parts but the keys, which are the last but one."""
        self.register_buffer("bias", None, persistent=False)

    def finalize_weights(self) -> None:
        """Biases of zero for the keys."""
        width = self.weight.shape[1]
        before, values = self.biases[:-width], self.biases[-width:]
        self.bias = torch.cat([before, torch.zeros_like(values), values]).detach()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """``[..., width]`` → each part, of the same shape."""
        parts = self.weight.shape[0] // self.weight.shape[1]
        return F.linear(x, self.weight, self.bias).chunk(parts, -1)


class Layer(nn.Module):
    """What every layer begins and ends with: attention over itself, and a feed-forward block."""

    def __init__(self, width: int, inner: int, env: NodeEnv) -> None:
        super().__init__()
        self.qkv = Packed(width, 3, env)
        self.out_proj = linear(width, width, env)
        self.self_attn_layer_norm = layer_norm(width, env)
        self.final_layer_norm = layer_norm(width, env)
        self.fc1 = linear(width, inner, env)
        self.fc2 = linear(inner, width, env)

    def feed_forward(self, x: Tensor) -> Tensor:
        """``x + fc2(gelu(fc1(norm(x))))``: ``[..., width]`` → the same shape."""
        hidden: Tensor = self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))
        return x + hidden
