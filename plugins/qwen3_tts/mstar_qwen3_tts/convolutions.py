"""The codec's convolutions over packed rows: causal, each with a memory of its last inputs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import frozen
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_qwen3_tts.layers import Make
from mstar_qwen3_tts.packed import PackedRows, extended

NORM_EPS, SNAKE_EPS = 1e-6, 1e-9
DILATIONS = (1, 3, 9)
TAPS = 7


@frozen(kw_only=True)
class Parts:
    """What the codec's parts are made with."""

    make: Make
    memory: Mapping[str, Tensor]
    """Per part that keeps something, by its name: ``[slots, channels, kept]``."""


class CausalConv(nn.Module):
    """A convolution that sees an item and what came before it. Its memory has its name."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, int, int],
        parts: Parts,
        dilation: int = 1,
        groups: int = 1,
    ) -> None:
        """``shape``: channels in, channels out, taps."""
        super().__init__()
        make = parts.make
        self.conv = nn.Conv1d(
            *shape, dilation=dilation, groups=groups, device=make.device, dtype=make.dtype
        )
        self.memory = parts.memory.get(name)

    def forward(self, x_CL: Tensor, rows: PackedRows) -> Tensor:
        """``[in, L]`` → ``[out, L]``."""
        conv = self.conv
        if self.memory is None:
            y_CL: Tensor = conv(x_CL[None])[0]
            return y_CL
        x_CE, at_L = extended(x_CL, self.memory, rows)
        y_CE: Tensor = conv(x_CE[None])[0]
        return y_CE.index_select(1, at_L - self.memory.shape[-1])


class UpConv(nn.Module):
    """A transposed convolution: each item becomes ``rate``, from itself and the one before."""

    def __init__(self, name: str, shape: tuple[int, int, int], parts: Parts, rate: int) -> None:
        """``shape``: channels in, channels out, taps: ``rate`` of them, or twice as many."""
        super().__init__()
        make = parts.make
        self.conv = nn.ConvTranspose1d(*shape, stride=rate, device=make.device, dtype=make.dtype)
        self.rate, self.memory = rate, parts.memory.get(name)

    def forward(self, x_CL: Tensor, rows: PackedRows) -> Tensor:
        """``[in, L]`` → ``[out, rate L]``."""
        if self.memory is None:
            y_CL: Tensor = self.conv(x_CL[None])[0]
            return y_CL
        x_CE, at_L = extended(x_CL, self.memory, rows)
        y_CE: Tensor = self.conv(x_CE[None])[0]
        by_item = y_CE[:, : x_CE.shape[1] * self.rate].reshape(len(y_CE), -1, self.rate)
        return by_item.index_select(1, at_L).flatten(1)


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

    def forward(self, x_CL: Tensor) -> Tensor:
        """The same shape."""
        turned_CL = (x_CL * self.alpha[:, None]).sin_()
        return torch.addcmul(x_CL, turned_CL, turned_CL * self.beta[:, None])


class ConvNext(nn.Module):
    """A convolution by channel, then a wide MLP, added to the input by a factor."""

    def __init__(self, name: str, channels: int, parts: Parts) -> None:
        super().__init__()
        make, wide = parts.make, 4 * channels
        depth = (channels, channels, TAPS)
        self.dwconv = CausalConv(f"{name}.dwconv", depth, parts, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS, device=make.device, dtype=make.dtype)
        self.pwconv1 = make.affine(channels, wide)
        self.pwconv2 = make.affine(wide, channels)
        self.gamma = make.weight(channels)

    def init_random(self, generator: torch.Generator) -> None:
        """A factor of one."""
        self.gamma.fill_(1)

    def forward(self, x_CL: Tensor, rows: PackedRows) -> Tensor:
        """The same shape."""
        wide_LC = F.gelu(self.pwconv1(self.norm(self.dwconv(x_CL, rows).T)))
        y_LC: Tensor = self.pwconv2(wide_LC)
        return x_CL + (self.gamma * y_LC).T


class ResidualUnit(nn.Module):
    """A dilated convolution and one of a single tap, each behind a snake, added to the input."""

    def __init__(self, name: str, channels: int, dilation: int, parts: Parts) -> None:
        super().__init__()
        wide, narrow = (channels, channels, TAPS), (channels, channels, 1)
        self.act1 = Snake(channels, parts.make)
        self.conv1 = CausalConv(f"{name}.conv1", wide, parts, dilation=dilation)
        self.act2 = Snake(channels, parts.make)
        self.conv2 = CausalConv(f"{name}.conv2", narrow, parts)

    def forward(self, x_CL: Tensor, rows: PackedRows) -> Tensor:
        """The same shape."""
        y_CL = self.conv1(self.act1(x_CL), rows)
        added_CL: Tensor = self.conv2(self.act2(y_CL), rows)
        return x_CL + added_CL


class UpBlock(nn.Module):
    """Half the channels, ``rate`` times the columns, then three residual units."""

    def __init__(self, name: str, channels: int, rate: int, parts: Parts) -> None:
        super().__init__()
        half = channels // 2
        units = [
            ResidualUnit(f"{name}.block.{i}", half, dilation, parts)
            for i, dilation in enumerate(DILATIONS, 2)
        ]
        up = UpConv(f"{name}.block.1", (channels, half, 2 * rate), parts, rate)
        self.block = nn.ModuleList([Snake(channels, parts.make), up, *units])

    def forward(self, x_CL: Tensor, rows: PackedRows) -> Tensor:
        """``[C, L]`` → ``[C / 2, rate L]``."""
        snake, *rest = self.block
        x_CL = snake(x_CL)
        for each in rest:
            x_CL = each(x_CL, rows)
        return x_CL
