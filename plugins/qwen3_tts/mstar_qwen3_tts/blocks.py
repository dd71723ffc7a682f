"""What the codec is built of: its convolutions with what lies between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_qwen3_tts.convolutions import CausalConv, Parts, Snake, UpConv
from mstar_qwen3_tts.packed import PackedRows

NORM_EPS = 1e-6
DILATIONS = (1, 3, 9)
TAPS = 7


class ConvNext(nn.Module):
    """A convolution by channel, then a wide MLP, added to the input by a factor."""

    def __init__(self, name: str, channels: int, parts: Parts) -> None:
        super().__init__()
        make, wide = parts.make, 4 * channels
        self.dwconv = CausalConv(
            f"{name}.dwconv", (channels, channels, TAPS), parts, by_channel=True
        )
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS, device=make.device, dtype=make.dtype)
        self.pwconv1 = make.affine(channels, wide)
        self.pwconv2 = make.affine(wide, channels)
        self.gamma = make.weight(channels)

    def init_random(self, generator: torch.Generator) -> None:
        """A factor of one."""
        self.gamma.fill_(1)

    def forward(self, x_LC: Tensor, rows: PackedRows) -> Tensor:
        """The same shape."""
        wide_LC = F.gelu(self.pwconv1(self.norm(self.dwconv(x_LC, rows))))
        return torch.addcmul(x_LC, self.gamma, self.pwconv2(wide_LC))


class ResidualUnit(nn.Module):
    """A dilated convolution and one of a single tap, each behind a snake, added to the input."""

    def __init__(self, name: str, channels: int, dilation: int, parts: Parts) -> None:
        super().__init__()
        wide, narrow = (channels, channels, TAPS), (channels, channels, 1)
        self.act1 = Snake(channels, parts.make)
        self.conv1 = CausalConv(f"{name}.conv1", wide, parts, dilation=dilation)
        self.act2 = Snake(channels, parts.make)
        self.conv2 = CausalConv(f"{name}.conv2", narrow, parts)

    def forward(self, x_LC: Tensor, rows: PackedRows) -> Tensor:
        """The same shape."""
        y_LC = self.conv1(x_LC, rows, before=self.act1, behind=self.act2)
        added_LC: Tensor = self.conv2(y_LC, rows, added_LN=x_LC)
        return added_LC


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

    def forward(self, x_LC: Tensor, rows: PackedRows) -> Tensor:
        """``[L, C]`` → ``[rate L, C / 2]``."""
        snake, up, *units = self.block
        x_LC = up(x_LC, rows, before=snake)
        for unit in units:
            x_LC = unit(x_LC, rows)
        return x_LC
