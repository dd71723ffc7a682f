"""Fine functions on tensors: norms, rotary positions, gates. All compute in fp32 and cast last."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def rms_norm(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """``x`` over the root of its mean square along the last axis, times the *effective* weight.

    A weight that is stored around zero is passed as ``1 + w`` in fp32 by the caller.
    """
    x32 = x.float()
    scaled = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (scaled * weight_D.float()).to(x.dtype)


def l2_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """``x`` over its length along the last axis; a zero vector stays zero."""
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.square().sum(-1, keepdim=True) + eps)).to(x.dtype)


def gated_rms_norm(x: Tensor, gate: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """``rms_norm(x) * silu(gate)`` in fp32, cast to the dtype of ``gate``.

    The norm comes before the cast, so an fp32 ``x`` beyond the range of fp16 stays finite.
    """
    normed = rms_norm(x.float(), weight_D, eps)
    return (normed * F.silu(gate.float())).to(gate.dtype)


def sigmoid_gate(x: Tensor, gate: Tensor) -> Tensor:
    """``x * sigmoid(gate)`` in fp32, cast to the dtype of ``x``."""
    return (x.float() * torch.sigmoid(gate.float())).to(x.dtype)


def rope_half_split(x_TND: Tensor, cos_TR: Tensor, sin_TR: Tensor) -> Tensor:
    """Turn the first R features of each head; features i and i + R/2 are one pair.

    ``cos_TR`` and ``sin_TR`` hold each of the R/2 angles twice, in two equal halves.
    """
    R = cos_TR.shape[-1]
    turned, rest = x_TND[..., :R].float(), x_TND[..., R:]
    low, high = turned.chunk(2, -1)
    across = torch.cat([-high, low], -1)
    turned = turned * cos_TR.float()[:, None] + across * sin_TR.float()[:, None]
    return torch.cat([turned.to(x_TND.dtype), rest], -1)


def rope_angles(positions_T: Tensor, rotary_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """``(cos_TR, sin_TR)`` fp32 of integer positions; R is ``rotary_dim``, in two equal halves."""
    return _turns(positions_T.float()[:, None], rotary_dim, theta)


def mrope_angles(
    positions_3T: Tensor,
    rotary_dim: int,
    theta: float,
    sections: Sequence[int],
    interleaved: bool = True,
) -> tuple[Tensor, Tensor]:
    """``(cos_TR, sin_TR)`` fp32 where each frequency reads one of three position rows (t, h, w).

    ``sections`` counts the frequencies of t, h and w. Interleaved: frequencies 1, 4, 7 … read h
    and 2, 5, 8 … read w as far as their sections go, all others t. Otherwise t, h and w take
    contiguous runs. Where all three rows are equal this is :func:`rope_angles`.
    """
    i = torch.arange(rotary_dim // 2, device=positions_3T.device)
    if interleaved:
        is_h = (i % 3 == 1) & (i < 3 * sections[1])
        is_w = (i % 3 == 2) & (i < 3 * sections[2])
    else:
        is_w = i >= sections[0] + sections[1]
        is_h = (i >= sections[0]) & ~is_w
    t, h, w = positions_3T.float()[..., None].unbind(0)
    return _turns(torch.where(is_h, h, torch.where(is_w, w, t)), rotary_dim, theta)


def _turns(positions: Tensor, rotary_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    steps = torch.arange(0, rotary_dim, 2, device=positions.device, dtype=torch.float32)
    angles = positions * (1.0 / theta ** (steps / rotary_dim))
    angles_TR = torch.cat([angles, angles], -1)
    return angles_TR.cos(), angles_TR.sin()
