"""The speaker encoder: mel frames of a recording to one vector, whoever else is in the step.

::

    mel ─► conv ─► 3 blocks ─┬─► joined ─► attention over time ─► mean and deviation ─► vector
                             └─ each: split, convolved part by part, weighed by channel

It computes in fp32, whatever the model does, and its parameters bear the published names.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mstar_qwen3_tts.ear_sizes import SpeakerSizes
from mstar_qwen3_tts.packed_columns import PackedColumns

LEAST_VARIANCE = 1e-12


class SameConv(nn.Module):
    """A convolution that keeps the length, over a row that is turned back at its ends."""

    def __init__(
        self, shape: tuple[int, int, int], device: torch.device, dilation: int = 1
    ) -> None:
        """``shape``: channels in, channels out, taps."""
        super().__init__()
        self.conv = nn.Conv1d(*shape, device=device, dtype=torch.float32)
        self.dilation = dilation

    def forward(self, x_CL: Tensor, columns: PackedColumns) -> Tensor:
        """``[in, L]`` → ``[out, L]``."""
        return convolved(self.conv, x_CL, columns, self.dilation)


def convolved(conv: nn.Conv1d, x_CL: Tensor, columns: PackedColumns, dilation: int = 1) -> Tensor:
    """The sum over the taps, each a product with the columns that lie so far off."""
    taps = conv.weight.shape[-1]
    y_CL: Tensor = conv.bias[:, None]  # type: ignore[index]
    for tap in range(taps):
        offset = tap * dilation - (taps - 1) * dilation // 2
        seen_CL = x_CL if taps == 1 else x_CL[:, columns.reflected(offset)]
        y_CL = y_CL + conv.weight[:, :, tap] @ seen_CL
    return y_CL


class SplitConvs(nn.Module):
    """Channels in parts: the first stays, each other is convolved with what came before it."""

    def __init__(self, sizes: SpeakerSizes, index: int, device: torch.device) -> None:
        super().__init__()
        width = sizes.channels[index] // sizes.parts
        shape, dilation = (width, width, sizes.taps[index]), sizes.dilations[index]
        self.blocks = nn.ModuleList(
            SameConv(shape, device, dilation) for _ in range(sizes.parts - 1)
        )

    def forward(self, x_CL: Tensor, columns: PackedColumns) -> Tensor:
        """The same shape."""
        first, *rest = x_CL.chunk(len(self.blocks) + 1)
        found, before = [first], torch.zeros_like(first)
        for part, block in zip(rest, self.blocks, strict=True):
            before = block(part + before, columns).relu()
            found.append(before)
        return torch.cat(found)


class Squeeze(nn.Module):
    """Each channel times a factor that follows from the means of all."""

    def __init__(self, channels: int, squeezed: int, device: torch.device) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(channels, squeezed, 1, device=device, dtype=torch.float32)
        self.conv2 = nn.Conv1d(squeezed, channels, 1, device=device, dtype=torch.float32)

    def forward(self, x_CL: Tensor, columns: PackedColumns) -> Tensor:
        """The same shape."""
        inner = convolved(self.conv1, columns.mean(x_CL), columns).relu()
        return x_CL * columns.spread(convolved(self.conv2, inner, columns).sigmoid())


class Block(nn.Module):
    """One of the three in the middle."""

    def __init__(self, sizes: SpeakerSizes, index: int, device: torch.device) -> None:
        super().__init__()
        before, width = sizes.channels[index - 1], sizes.channels[index]
        self.tdnn1 = SameConv((before, width, 1), device)
        self.res2net_block = SplitConvs(sizes, index, device)
        self.tdnn2 = SameConv((width, width, 1), device)
        self.se_block = Squeeze(width, sizes.squeezed, device)

    def forward(self, x_CL: Tensor, columns: PackedColumns) -> Tensor:
        """The same shape."""
        y_CL = self.res2net_block(self.tdnn1(x_CL, columns).relu(), columns)
        squeezed_CL: Tensor = self.se_block(self.tdnn2(y_CL, columns).relu(), columns)
        return x_CL + squeezed_CL


class Pooling(nn.Module):
    """Mean and deviation over time, weighed by an attention of each channel."""

    def __init__(self, channels: int, attention: int, device: torch.device) -> None:
        super().__init__()
        self.tdnn = SameConv((3 * channels, attention, 1), device)
        self.conv = nn.Conv1d(attention, channels, 1, device=device, dtype=torch.float32)

    def forward(self, x_CL: Tensor, columns: PackedColumns) -> Tensor:
        """``[C, L]`` → ``[2 C, B]``."""
        even_1L = columns.spread(1 / columns.own_BL.sum(1)[None])
        plain = [columns.spread(each) for each in _statistics(x_CL, even_1L, columns)]
        scores_CL = self.tdnn(torch.cat([x_CL, *plain]), columns).relu().tanh()
        weights_CL = columns.softmax(convolved(self.conv, scores_CL, columns))
        return torch.cat(_statistics(x_CL, weights_CL, columns))


class SpeakerEncoder(nn.Module):
    """Mel frames ``[L, bins]`` of packed recordings → ``[B, width]``."""

    def __init__(self, sizes: SpeakerSizes, device: torch.device) -> None:
        super().__init__()
        *channels, joined = sizes.channels
        first = SameConv((sizes.bins, channels[0], sizes.taps[0]), device, sizes.dilations[0])
        middle = [Block(sizes, i, device) for i in range(1, len(channels))]
        self.blocks = nn.ModuleList([first, *middle])
        shape = (sum(channels[1:]), joined, sizes.taps[-1])
        self.mfa = SameConv(shape, device, sizes.dilations[-1])
        self.asp = Pooling(joined, sizes.attention, device)
        self.fc = nn.Conv1d(2 * joined, sizes.width, 1, device=device, dtype=torch.float32)

    def forward(self, mel_LC: Tensor, columns: PackedColumns) -> Tensor:
        """One vector a recording, fp32."""
        first, *middle = self.blocks
        x_CL, found = first(mel_LC.float().T, columns).relu(), []
        for block in middle:
            x_CL = block(x_CL, columns)
            found.append(x_CL)
        pooled_CB = self.asp(self.mfa(torch.cat(found), columns).relu(), columns)
        return convolved(self.fc, pooled_CB, columns).T


def _statistics(x_CL: Tensor, weights_CL: Tensor, columns: PackedColumns) -> tuple[Tensor, Tensor]:
    """Weighed mean and deviation of each row, ``[C, B]`` each; the weights of a row sum to one."""
    mean_CB = columns.total(weights_CL * x_CL)
    away_CL = weights_CL * (x_CL - columns.spread(mean_CB)).square()
    return mean_CB, columns.total(away_CL).clamp(min=LEAST_VARIANCE).sqrt()
