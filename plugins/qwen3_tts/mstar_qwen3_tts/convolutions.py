"""The codec's convolutions over packed rows: causal, each with a memory of its last inputs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import frozen
from torch import Tensor, nn

from mstar_core.model.base import NodeEnv
from mstar_qwen3_tts.columns.contract import OPERATION, Bend, Columns, Taps
from mstar_qwen3_tts.layers import Make
from mstar_qwen3_tts.packed import PackedRows

SNAKE_EPS = 1e-9


@frozen(kw_only=True)
class Parts:
    """What the codec's parts are made with."""

    make: Make
    columns: Columns
    memory: Mapping[str, Tensor]
    """Per part that keeps something, by its name: ``[slots, kept, channels]``."""

    @classmethod
    def of(cls, env: NodeEnv) -> Parts:
        """With the node's memory and its backends."""
        memory = env.resource("memory").layer(0)
        return cls(make=Make.of(env), columns=env.bind(OPERATION, {}), memory=memory)


def made_later(make: Make) -> Tensor:
    """What a buffer holds until weights are finalised."""
    return torch.empty(0, device=make.device, dtype=make.dtype)


class Snake(nn.Module):
    """``x + sin²(exp(alpha) x) / exp(beta)``, by channel."""

    def __init__(self, channels: int, make: Make) -> None:
        super().__init__()
        self.alpha, self.beta = make.weight(channels), make.weight(channels)

    def init_random(self, generator: torch.Generator) -> None:
        """Both zero, as training begins."""
        self.alpha.zero_()
        self.beta.zero_()

    def finalize_weights(self) -> None:
        """Keep what the channels are multiplied by in place of its logarithm."""
        self.alpha.copy_(self.alpha.exp())
        self.beta.copy_(1 / (self.beta.exp() + SNAKE_EPS))

    @property
    def bend(self) -> Bend:
        """As a convolution reads it."""
        return Bend(alpha_C=self.alpha, beta_C=self.beta)


class CausalConv(nn.Module):
    """A convolution that sees a column and what came before it. Its memory has its name."""

    weight: Tensor
    """As the backend reads it."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, int, int],
        parts: Parts,
        dilation: int = 1,
        by_channel: bool = False,
    ) -> None:
        """``shape``: channels in, channels out, taps."""
        super().__init__()
        make, groups = parts.make, shape[0] if by_channel else 1
        self.conv = nn.Conv1d(*shape, groups=groups, device=make.device, dtype=make.dtype)
        self.columns, self.memory = parts.columns, parts.memory.get(name)
        self.taps, self.dilation, self.by_channel = shape[2], dilation, by_channel
        self.register_buffer("weight", made_later(make), persistent=False)

    def finalize_weights(self) -> None:
        """Lay the weight out for the backend, and keep it so alone."""
        weight_NCK, self.conv.weight = self.conv.weight.detach(), None
        self.weight = self.columns.prepare(weight_NCK, by_channel=self.by_channel)

    def forward(
        self,
        x_LC: Tensor,
        rows: PackedRows,
        before: Snake | None = None,
        behind: Snake | None = None,
        added_LN: Tensor | None = None,
    ) -> Tensor:
        """``[L, in]`` → ``[L, out]``, between two snakes, and added to ``added_LN``."""
        taps = Taps(
            weight=self.weight,
            bias_N=self.conv.bias,
            taps=self.taps,
            dilation=self.dilation,
            by_channel=self.by_channel,
            memory_SKC=self.memory,
            before=None if before is None else before.bend,
            behind=None if behind is None else behind.bend,
        )
        return self.columns.convolve(x_LC, taps, rows, added_LN)


class UpConv(nn.Module):
    """A transposed convolution: each column becomes ``rate``, from itself and the one before.

    So it is a convolution of one or two taps with ``rate`` times the channels.
    """

    weight: Tensor
    """As the backend reads it."""
    bias_N: Tensor

    def __init__(self, name: str, shape: tuple[int, int, int], parts: Parts, rate: int) -> None:
        """``shape``: channels in, channels out, taps: ``rate`` of them, or twice as many."""
        super().__init__()
        make = parts.make
        self.conv = nn.ConvTranspose1d(*shape, device=make.device, dtype=make.dtype)
        self.columns, self.memory = parts.columns, parts.memory.get(name)
        self.rate, self.taps = rate, shape[2] // rate
        for name in ("weight", "bias_N"):
            self.register_buffer(name, made_later(make), persistent=False)

    def finalize_weights(self) -> None:
        """Lay the weight out for the backend: tap ``rate`` and those behind meet the one before."""
        weight_CNK, self.conv.weight = self.conv.weight.detach(), None
        C, N, _ = weight_CNK.shape
        by_tap = weight_CNK.view(C, N, self.taps, self.rate).flip(2)
        weight_NCK = by_tap.permute(3, 1, 0, 2).reshape(self.rate * N, C, self.taps)
        self.weight = self.columns.prepare(weight_NCK.contiguous(), by_channel=False)
        self.bias_N = self.conv.bias.detach().repeat(self.rate)

    def forward(self, x_LC: Tensor, rows: PackedRows, before: Snake | None = None) -> Tensor:
        """``[L, in]`` → ``[rate L, out]``, behind a snake."""
        taps = Taps(
            weight=self.weight,
            bias_N=self.bias_N,
            taps=self.taps,
            memory_SKC=self.memory,
            before=None if before is None else before.bend,
        )
        return self.columns.convolve(x_LC, taps, rows).view(len(x_LC) * self.rate, -1)
