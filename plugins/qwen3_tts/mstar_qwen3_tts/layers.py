"""The layer that talker, code predictor and codec share, and how its parameters are made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from attrs import frozen
from torch import Tensor, nn

from mstar_core.model.base import NodeEnv
from mstar_core.ops.linear.contract import Linear
from mstar_qwen3_tts.sizes import StackConfig

Attend = Callable[[Tensor, Tensor, Tensor, "Layer"], Tensor]
"""``q_TND, k_TGD, v_TGD`` of a layer → ``o_TND``: norms heads, turns them, attends."""


@frozen(kw_only=True)
class Make:
    """What layers are made with."""

    device: torch.device
    dtype: torch.dtype
    linear: Linear
    """The products of the node's backend."""

    @classmethod
    def of(cls, env: NodeEnv) -> Make:
        """On the node's device, in its dtype, with its products."""
        return cls(device=env.device, dtype=env.dtype, linear=env.bind("linear", {}))

    def weight(self, *shape: int) -> nn.Parameter:
        """An unfilled parameter."""
        empty = torch.empty(shape, device=self.device, dtype=self.dtype)
        return nn.Parameter(empty, requires_grad=False)

    def affine(self, inputs: int, outputs: int) -> nn.Linear:
        """An unfilled product with a bias."""
        return nn.Linear(inputs, outputs, device=self.device, dtype=self.dtype)


def exact_convolutions() -> AbstractContextManager[None]:
    """Inside, a GPU's convolutions of fp32 are as exact as its products, which take no tf32."""
    exact: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return exact


class Layer(nn.Module):
    """Attention, then a gated MLP; each norms what it reads and adds to the residual stream."""

    def __init__(self, sizes: StackConfig, make: Make, *, normed: bool, scaled: bool) -> None:
        """``normed``: heads have norms of their own. ``scaled``: what is added has a factor."""
        super().__init__()
        self.linear, self.eps = make.linear, sizes.eps
        self.heads = [sizes.heads, sizes.kv_heads, sizes.kv_heads]
        self.head_dim = sizes.head_dim
        width = sizes.heads * sizes.head_dim
        self.attn_norm = make.weight(sizes.hidden)
        self.qkv = make.weight(sum(self.heads) * sizes.head_dim, sizes.hidden)
        self.out = make.weight(sizes.hidden, width)
        self.mlp_norm = make.weight(sizes.hidden)
        self.gate_up = make.weight(2 * sizes.inner, sizes.hidden)
        self.down = make.weight(sizes.hidden, sizes.inner)
        self.q_norm = make.weight(sizes.head_dim) if normed else None
        self.k_norm = make.weight(sizes.head_dim) if normed else None
        self.out_scale = make.weight(sizes.hidden) if scaled else None
        self.down_scale = make.weight(sizes.hidden) if scaled else None

    def init_random(self, generator: torch.Generator) -> None:
        """Norms and factors of one; matrices keep the loader's noise."""
        for name, tensor in self.named_parameters():
            if "norm" in name or "scale" in name:
                tensor.fill_(1)

    def finalize_weights(self) -> None:
        """Put the factors into the matrices before them."""
        for weight, scale in ((self.out, self.out_scale), (self.down, self.down_scale)):
            if scale is not None:
                weight.mul_(scale[:, None])

    def forward(self, x_TH: Tensor, attend: Attend) -> Tensor:
        """The residual stream behind the layer."""
        qkv_T = self.linear.norm_linear(x_TH, self.attn_norm, self.qkv, eps=self.eps)
        by_head = qkv_T.view(len(x_TH), -1, self.head_dim)
        q_TND, k_TGD, v_TGD = torch.split(by_head, self.heads, 1)
        o_TND = attend(q_TND, k_TGD, v_TGD, self)
        x_TH = self.linear.linear_residual(o_TND.flatten(1), self.out, x_TH)
        inner_TF = self.linear.norm_gated(x_TH, self.mlp_norm, self.gate_up, eps=self.eps)
        return self.linear.linear_residual(inner_TF, self.down, x_TH)
