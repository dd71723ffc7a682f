"""Contract of ``codec_columns``: causal operations over rows that are cut into steps.

A sequence is ``[L, C]``: a column of C channels behind the other, all rows packed. L is a multiple
of the step's items, each of which has become as many columns. Whatever looks back finds the last
columns of the row's step before in a memory ``[slots, kept, C]``, and leaves its own there; a row
that is fresh finds zeros. So a row gives the same however it is cut into steps, and none sees
another. Shapes follow from the numbers of rows and items, and nothing is read back.
"""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from mstar_qwen3_tts.packed import PackedRows

OPERATION = "codec_columns"
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}
"""Largest absolute and relative difference to torch's, by dtype, where results are about one."""


@frozen(kw_only=True, eq=False)
class Bend:
    """``x + beta sin²(alpha x)``, by channel."""

    alpha_C: Tensor
    beta_C: Tensor


@frozen(kw_only=True, eq=False)
class Taps:
    """A causal convolution, and what stands around it."""

    weight: Tensor
    """As ``prepare`` gave it, of ``[N, C, K]``, or ``[C, 1, K]`` for one by channel."""
    bias_N: Tensor
    taps: int
    dilation: int = 1
    by_channel: bool = False
    memory_SKC: Tensor | None = None
    """``(K - 1) dilation`` columns of each slot; None for a single tap."""
    before: Bend | None = None
    behind: Bend | None = None


@frozen(kw_only=True, eq=False)
class Window:
    """Attention over a row's last columns."""

    size: int
    """Columns that one sees, itself too."""
    memory_SKC: Tensor
    """``size - 1`` columns of each slot: keys, already turned, then values."""


@frozen(kw_only=True, eq=False)
class Frames:
    """The items of a step, and where each is in its row."""

    rows: PackedRows
    index_T: Tensor
    """Counts a row's items from its first."""
    rope: tuple[Tensor, Tensor]
    """Cosine and sine of each, fp32 ``[T, D]``."""


class Prepare(Protocol):
    """A weight ``[N, C, K]`` as ``convolve`` reads it."""

    def __call__(self, weight_NCK: Tensor, *, by_channel: bool) -> Tensor: ...


class Convolve(Protocol):
    """``[L, C]`` → ``[L, N]``: bent, convolved, bent, and added to ``added_LN``."""

    def __call__(
        self, x_LC: Tensor, taps: Taps, rows: PackedRows, added_LN: Tensor | None = None
    ) -> Tensor: ...


class Attend(Protocol):
    """q ``[T, N, D]``, k and v ``[T, G, D]`` → ``[T, N D]``; one column an item.

    The three are views of the same rows, heads one behind the other.
    """

    def __call__(
        self,
        q_TND: Tensor,
        k_TGD: Tensor,
        v_TGD: Tensor,
        window: Window,
        frames: Frames,
    ) -> Tensor: ...


@frozen(kw_only=True, eq=False)
class Columns:
    """What a backend of ``codec_columns`` binds; there is no geometry."""

    prepare: Prepare
    convolve: Convolve
    attend: Attend
