"""The layers of the text model: parameters, and the order in which operations meet the resources.

No layer keeps state of a request. Attention and the delta rule are the node's resources; a mixer is
built with its layer's face of one, hands it packed rows and its weights, and gets packed rows back.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from attrs import frozen
from torch import Tensor, nn

from mstar_core.ops.gated_delta import GdnWeights
from mstar_core.ops.linear.contract import Linear
from mstar_core.step import Plan
from mstar_qwen35.config import Qwen35Config

Rotation = tuple[Tensor, Tensor]
"""``(cos_TR, sin_TR)``, fp32."""


@frozen(kw_only=True)
class Make:
    """What layers are made with."""

    device: torch.device
    dtype: torch.dtype
    linear: Linear
    """The products of the node's backend."""

    def weight(self, *shape: int, dtype: torch.dtype | None = None) -> nn.Parameter:
        """An unfilled parameter, of the model's dtype unless one is named."""
        empty = torch.empty(shape, device=self.device, dtype=dtype or self.dtype)
        return nn.Parameter(empty, requires_grad=False)


class Norm(nn.Module):
    """The weight of an RMS norm that is stored as an offset from one."""

    scale: Tensor
    """The multiplier, fp32; made from the offset once the weights are loaded."""

    def __init__(self, width: int, eps: float, make: Make) -> None:
        super().__init__()
        self.eps = eps
        self.offset = make.weight(width)
        scale = torch.empty(width, device=make.device, dtype=torch.float32)
        self.register_buffer("scale", scale, persistent=False)

    def finalize_weights(self) -> None:
        """Make the multiplier."""
        self.scale = 1 + self.offset.float()


class FullAttention(nn.Module):
    """Gated softmax attention over the KV pool, queries and keys normed per head and turned."""

    def __init__(self, config: Qwen35Config, make: Make, attend: Any) -> None:
        super().__init__()
        self.linear, self.attend = make.linear, attend
        self.heads = (config.num_heads, 2, config.head_dim)
        self.kv_heads = (config.num_kv_heads, config.head_dim)
        q_rows, kv_rows = prod(self.heads), prod(self.kv_heads)
        self.rows = [q_rows, kv_rows, kv_rows]
        self.norm = Norm(config.hidden_size, config.eps, make)
        self.qkv = make.weight(sum(self.rows), config.hidden_size)
        """Rows: per query head its query, then its gate; all keys; all values."""
        self.q_norm = Norm(config.head_dim, config.eps, make)
        self.k_norm = Norm(config.head_dim, config.eps, make)
        self.out = make.weight(config.hidden_size, q_rows // 2)

    def forward(self, x_TH: Tensor, plans: Mapping[str, Plan], rope: Rotation) -> Tensor:
        """``x_TH`` with the attention's output added."""
        T = len(x_TH)
        qkv_T = self.linear.norm_linear(x_TH, self.norm.scale, self.qkv, eps=self.norm.eps)
        q_T, k_T, v_T = torch.split(qkv_T, self.rows, -1)
        q_TND, gate_TND = q_T.view(T, *self.heads).unbind(2)
        o_TND = self.attend.step(
            q_TND,
            k_T.view(T, *self.kv_heads),
            v_T.view(T, *self.kv_heads),
            plans["attention"],
            gate_TND=gate_TND,
            q_norm=self.q_norm.scale,
            k_norm=self.k_norm.scale,
            eps=self.norm.eps,
            rope=rope,
        )
        return self.linear.linear_residual(o_TND.flatten(1), self.out, x_TH)


class LinearAttention(nn.Module):
    """The gated delta rule: convolution window, recurrent state, gated norm."""

    def __init__(self, config: Qwen35Config, make: Make, delta: Any) -> None:
        super().__init__()
        self.linear, self.delta = make.linear, delta
        heads = config.num_v_heads
        self.rows = [config.conv_channels, config.value_width, heads, heads]
        self.norm = Norm(config.hidden_size, config.eps, make)
        self.inputs = make.weight(sum(self.rows), config.hidden_size)
        """Rows: q, k, v of the convolution; z of the output gate; b of beta; a of the decay."""
        self.conv = make.weight(config.conv_channels, config.conv_taps)
        self.a_log = make.weight(heads, dtype=torch.float32)
        self.dt_bias = make.weight(heads, dtype=torch.float32)
        self.out_norm = make.weight(config.v_dim, dtype=torch.float32)
        """A plain multiplier, unlike every other norm of the model."""
        self.out = make.weight(config.hidden_size, config.value_width)

    def init_random(self, generator: torch.Generator) -> None:
        """A decay near one and a norm of one; matrices keep the loader's noise."""
        self.a_log.normal_(0.7, 0.3, generator=generator)
        self.dt_bias.normal_(-6.0, 0.3, generator=generator)
        self.out_norm.fill_(1)

    def forward(self, x_TH: Tensor, plans: Mapping[str, Plan], rope: Rotation) -> Tensor:
        """``x_TH`` with the mixer's output added; ``rope`` plays no part."""
        inputs_T = self.linear.norm_linear(x_TH, self.norm.scale, self.inputs, eps=self.norm.eps)
        qkv_TC, z_TV, b_TH, a_TH = torch.split(inputs_T, self.rows, -1)
        weights = GdnWeights(
            conv_CK=self.conv,
            A_log_H=self.a_log,
            dt_bias_H=self.dt_bias,
            norm_D=self.out_norm,
            eps=self.norm.eps,
        )
        o_TV = self.delta.step(qkv_TC, z_TV, b_TH, a_TH, weights, plans["gated_delta"])
        return self.linear.linear_residual(o_TV, self.out, x_TH)


class MLP(nn.Module):
    """``down(silu(gate x) * up x)``."""

    def __init__(self, config: Qwen35Config, make: Make) -> None:
        super().__init__()
        self.linear = make.linear
        self.norm = Norm(config.hidden_size, config.eps, make)
        self.gate_up = make.weight(2 * config.intermediate_size, config.hidden_size)
        self.down = make.weight(config.hidden_size, config.intermediate_size)

    def forward(self, x_TH: Tensor) -> Tensor:
        """``x_TH`` with the MLP's output added."""
        gated_TF = self.linear.norm_gated(x_TH, self.norm.scale, self.gate_up, eps=self.norm.eps)
        return self.linear.linear_residual(gated_TF, self.down, x_TH)


class Layer(nn.Module):
    """A mixer, then an MLP; each norms what it reads and adds to the residual stream."""

    def __init__(self, mixer: nn.Module, mlp: MLP) -> None:
        super().__init__()
        self.mixer, self.mlp = mixer, mlp

    def forward(self, x_TH: Tensor, plans: Mapping[str, Plan], rope: Rotation) -> Tensor:
        """The residual stream behind the layer."""
        mixed_TH: Tensor = self.mlp(self.mixer(x_TH, plans, rope))
        return mixed_TH


class Head(nn.Module):
    """Hidden rows to logits, by a matrix of its own or the embedding's."""

    def __init__(self, config: Qwen35Config, make: Make, weight: nn.Parameter) -> None:
        super().__init__()
        self.linear = make.linear
        self.norm = Norm(config.hidden_size, config.eps, make)
        self.weight = weight

    def forward(self, x_BH: Tensor) -> Tensor:
        """``[B, V]``, from the residual stream behind the last layer."""
        return self.linear.norm_linear(x_BH, self.norm.scale, self.weight, eps=self.norm.eps)
