"""The encoder of recordings: samples to the codes that the talker and the codec's decoder know.

::

    samples ─► convolutions, each shortening ─► transformer, 25 Hz ─► half as many ─► nearest codes

Recordings of a step lie in one sequence with a silent frame before each, longer than any of its
convolutions reaches back, so that none hears another. What lies behind the last sample of a
recording is made zero before each convolution, as if nothing were there. It computes in fp32,
whatever the model does, and its parameters bear the published names.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.ops.functional import rope_angles
from mstar_qwen3_tts.ear_sizes import RecordingSizes
from mstar_qwen3_tts.layers import exact_convolutions
from mstar_qwen3_tts.packed_columns import PackedColumns
from mstar_qwen3_tts.recording_layers import Layer, Quantizer

LAST_TAPS, TAPS = 4, 7


class Heard:
    """Frames of packed recordings, and how much of each is sound."""

    def __init__(self, valid_T: Tensor, frames: PackedColumns, samples_per_frame: int) -> None:
        """``valid_T``: samples of each frame; fewer than all only in the last of a recording."""
        self.frames, self.per_frame = frames, samples_per_frame
        self.num = len(valid_T) + len(frames.own_BL)
        places_T = torch.arange(len(valid_T), device=valid_T.device)
        self.place_T = places_T + frames.row_L + 1
        """Where each frame lies in the sequence: behind a silent one for each recording so far."""
        self.valid_P = valid_T.new_zeros(self.num).index_copy(0, self.place_T, valid_T)

    def sequence(self, samples_TL: Tensor) -> Tensor:
        """``[T, samples]`` → ``[1, 1, P samples]``."""
        laid_PL = samples_TL.new_zeros(self.num, self.per_frame)
        return laid_PL.index_copy(0, self.place_T, samples_TL).view(1, 1, -1)

    def sounding(self, columns: int) -> Tensor:
        """bool ``[P, columns]``: the columns of each frame that are of a recording."""
        each = self.per_frame // columns
        nth = torch.arange(columns, device=self.valid_P.device)
        return nth < (self.valid_P[:, None] + each - 1) // each

    def masked(self, x_1CL: Tensor) -> Tensor:
        """The same, zero where there is no recording."""
        sounding_L = self.sounding(x_1CL.shape[-1] // self.num).flatten()
        return x_1CL.masked_fill(~sounding_L, 0)


class Conv(nn.Module):
    """A causal convolution that shortens by its stride."""

    def __init__(self, shape: tuple[int, int, int], device: torch.device, stride: int = 1) -> None:
        """``shape``: channels in, channels out, taps."""
        super().__init__()
        self.conv = nn.Conv1d(*shape, stride=stride, device=device, dtype=torch.float32)
        self.behind = shape[-1] - stride

    def forward(self, x_1CL: Tensor, heard: Heard) -> Tensor:
        """``[1, in, L]`` → ``[1, out, L / stride]``."""
        return heard.masked(self.conv(F.pad(x_1CL, (self.behind, 0))))


class Residual(nn.Module):
    """Half the channels and back, added to the input."""

    def __init__(self, channels: int, device: torch.device) -> None:
        super().__init__()
        narrow = Conv((channels, channels // 2, 3), device)
        self.block = nn.ModuleDict({"1": narrow, "3": Conv((channels // 2, channels, 1), device)})

    def forward(self, x_1CL: Tensor, heard: Heard) -> Tensor:
        """The same shape."""
        y_1CL = x_1CL
        for conv in self.block.values():
            y_1CL = conv(F.elu(y_1CL), heard)
        return x_1CL + y_1CL


class Convolutions(nn.Module):
    """Samples to columns at 25 Hz."""

    def __init__(self, sizes: RecordingSizes, device: torch.device) -> None:
        super().__init__()
        width, found = sizes.filters, dict[str, nn.Module]()
        found["0"] = Conv((1, width, TAPS), device)
        for i, rate in enumerate(sizes.rates):
            found[f"{3 * i + 1}"] = Residual(width, device)
            found[f"{3 * i + 3}"] = Conv((width, 2 * width, 2 * rate), device, stride=rate)
            width *= 2
        found[f"{3 * len(sizes.rates) + 2}"] = Conv((width, sizes.stack.hidden, 3), device)
        self.layers = nn.ModuleDict(found)

    def forward(self, x_1CL: Tensor, heard: Heard) -> Tensor:
        """``[1, 1, L]`` → ``[columns, hidden]``."""
        first, *rest = self.layers.values()
        x_1CL = first(x_1CL, heard)
        for layer in rest:
            x_1CL = layer(x_1CL if isinstance(layer, Residual) else F.elu(x_1CL), heard)
        return x_1CL[0].T


class RecordingEncoder(nn.Module):
    """Samples of packed recordings ``[T, samples a frame]`` → codes, int64 ``[T, books]``."""

    def __init__(self, sizes: RecordingSizes, device: torch.device) -> None:
        super().__init__()
        stack = sizes.stack
        self.encoder = Convolutions(sizes, device)
        self.head_dim, self.theta = stack.head_dim, stack.theta
        layers = nn.ModuleList(Layer(stack, device) for _ in range(stack.layers))
        self.encoder_transformer = nn.ModuleDict({"layers": layers})
        shape = (stack.hidden, stack.hidden, LAST_TAPS)
        self.downsample = nn.ModuleDict({"conv": nn.Conv1d(*shape, bias=False, device=device)})
        self.quantizer = nn.ModuleDict(
            {
                "semantic_residual_vector_quantizer": Quantizer(1, sizes, device),
                "acoustic_residual_vector_quantizer": Quantizer(sizes.codes - 1, sizes, device),
            }
        )

    def forward(self, samples_TL: Tensor, valid_T: Tensor, frames: PackedColumns) -> Tensor:
        """``valid_T``: how many samples of each frame there are."""
        heard = Heard(valid_T, frames, samples_TL.shape[1])
        with exact_convolutions():
            x_LH = self.encoder(heard.sequence(samples_TL.float()), heard)
        x_LH = self._mixed(x_LH, heard)
        halved_TH = self._halved(x_LH, heard)
        return torch.stack([c for each in self.quantizer.values() for c in each(halved_TH)], 1)

    def _mixed(self, x_LH: Tensor, heard: Heard) -> Tensor:
        """The transformer over the two columns of each frame."""
        frames, two = heard.frames, torch.arange(2, device=x_LH.device)
        row_P = frames.row_L.new_full((heard.num,), -1).index_copy(0, heard.place_T, frames.row_L)
        at_P = torch.zeros_like(row_P).index_copy(0, heard.place_T, frames.at_L)
        row_L, at_L = row_P.repeat_interleave(2), (2 * at_P[:, None] + two).flatten()
        alike_LL = (row_L[:, None] == row_L) & (row_L >= 0) & heard.sounding(2).flatten()
        itself_LL = torch.eye(len(row_L), dtype=torch.bool, device=x_LH.device)
        seen_LL = (alike_LL & (at_L[:, None] >= at_L)) | itself_LL
        rope = rope_angles(at_L, self.head_dim, self.theta)
        for layer in self.encoder_transformer["layers"]:  # type: ignore[attr-defined]
            x_LH = layer(x_LH, rope, seen_LL)
        return x_LH

    def _halved(self, x_LH: Tensor, heard: Heard) -> Tensor:
        """One column a frame; the ends of a recording go on as they are."""
        frames = heard.frames
        columns_T = heard.sounding(2).sum(1)[heard.place_T]
        last_T = (frames.total(columns_T[None].float())[0].long() - 1)[frames.row_L]
        reach = torch.arange(-2, 2, device=x_LH.device)
        at_TK = (2 * frames.at_L[:, None] + reach).clamp(min=0)
        at_TK = torch.minimum(at_TK, last_T[:, None])
        begins_T = 2 * (heard.place_T - frames.at_L)
        around_TKH = x_LH[begins_T[:, None] + at_TK]
        weight = self.downsample["conv"].weight
        return torch.einsum("tkh,ohk->to", around_TKH, weight)
