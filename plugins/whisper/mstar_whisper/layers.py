"""What encoder and decoder layers share. Parameters bear the names of the published weights."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.model.base import NodeEnv

EPS = 1e-5


def layer_norm(width: int, env: NodeEnv) -> nn.LayerNorm:
    """A layer norm over ``width`` features."""
    return nn.LayerNorm(width, eps=EPS, device=env.device, dtype=env.dtype)


def linear(inputs: int, outputs: int, env: NodeEnv, bias: bool = True) -> nn.Linear:
    """A linear layer on the node's device, in its dtype."""
    return nn.Linear(inputs, outputs, bias=bias, device=env.device, dtype=env.dtype)


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


class Projections(nn.Module):
    """The four linear layers of an attention; keys have no bias."""

    def __init__(self, width: int, env: NodeEnv) -> None:
        super().__init__()
        self.q_proj = linear(width, width, env)
        self.k_proj = linear(width, width, env, bias=False)
        self.v_proj = linear(width, width, env)
        self.out_proj = linear(width, width, env)

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of ``x``, each ``[..., width]``."""
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


class Layer(nn.Module):
    """What every layer begins and ends with: attention over itself, and a feed-forward block."""

    def __init__(self, width: int, inner: int, env: NodeEnv) -> None:
        super().__init__()
        self.self_attn = Projections(width, env)
        self.self_attn_layer_norm = layer_norm(width, env)
        self.final_layer_norm = layer_norm(width, env)
        self.fc1 = linear(width, inner, env)
        self.fc2 = linear(inner, width, env)

    def feed_forward(self, x: Tensor) -> Tensor:
        """``x + fc2(gelu(fc1(norm(x))))``: ``[..., width]`` → the same shape."""
        hidden: Tensor = self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))
        return x + hidden
