"""Cases of ``gated_delta`` and their layouts in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import asdict, frozen
from torch import Tensor

from mstar_core.ops.cases import Packing, normal, seeded
from mstar_core.ops.gated_delta.contract import GdnPools, GdnWeights


@frozen(kw_only=True)
class Case:
    """Rows of ``(span, fresh)``; a row that is not fresh has a random state behind it."""

    name: str
    rows: tuple[tuple[int, bool], ...]
    decode: int = 0
    pad_rows: int = 0
    pad_tokens: int = 0
    lead: int = 0
    """Bound of the lead; 0: the step is not split."""
    num_k_heads: int = 2
    num_v_heads: int = 4
    k_dim: int = 8
    v_dim: int = 16
    taps: int = 4

    def __str__(self) -> str:
        return self.name

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return 2 * self.num_k_heads * self.k_dim + self.num_v_heads * self.v_dim


CASES: tuple[Case, ...] = (
    Case(name="one-fresh-token", rows=((1, True),)),
    Case(name="prompt", rows=((37, True),)),
    Case(name="shorter-than-the-window", rows=((1, False), (2, False), (2, True), (3, False))),
    Case(name="packed", rows=((1, True), (3, False), (64, True), (65, False), (130, True))),
    Case(name="packed-and-padded", rows=((5, True), (70, False)), pad_rows=2, pad_tokens=9),
    Case(name="padded-without-tokens", rows=((5, True), (3, False)), pad_rows=2),
    Case(name="zero-length-rows", rows=((4, False), (0, False), (0, True), (2, True)), pad_rows=1),
    Case(name="decode", rows=((1, False), (1, True), (1, False)), decode=1),
    Case(name="decode-padded", rows=((1, False), (1, True)), decode=1, pad_rows=3),
    Case(name="wide-keys", rows=((66, False), (2, True)), k_dim=24, v_dim=8),
    Case(name="heads-alone", rows=((20, False),), num_k_heads=3, num_v_heads=3, k_dim=16),
    Case(name="wide-keys-decode", rows=((1, False), (1, True)), decode=1, k_dim=24, v_dim=8),
)


def _mixed(name: str, *rows: tuple[int, bool], lead: int = 3) -> Case:
    """A step of a bucket of 6 rows and 16 tokens: replays of one another, see ``SPLIT``."""
    left = 16 - sum(span for span, _ in rows)
    return Case(name=name, rows=rows, pad_rows=6 - len(rows), pad_tokens=left, lead=lead)


SPLIT = (
    _mixed("decode-first", (1, False), (1, False), (7, True), (4, False)),
    _mixed("interleaved", (7, True), (1, False), (4, False), (1, False)),
    _mixed("no-decode", (7, True), (4, False), (2, False), (2, True)),
    _mixed("one-token-prompts", (1, False), (1, False), (1, True), (10, False)),
    _mixed("one-padding-token", (1, False), (1, True), (8, True), (5, False)),
    _mixed("a-row-of-no-tokens", (1, False), (0, False), (8, True), (5, False)),
    _mixed("more-than-the-lead", (1, False), (1, True), (1, True), (1, False)),
)
"""Layouts of one mixed bucket, of four rows each."""
CASES += (
    *SPLIT,
    Case(name="a-lead-alone", rows=((1, False), (1, True), (1, False)), lead=3),
    Case(name="a-lead-and-a-long-prompt", rows=((1, False), (1, False), (130, True)), lead=2),
)


@frozen(kw_only=True, eq=False)
class CasePlan:
    """A step's plan, as :class:`~mstar_core.ops.gated_delta.contract.GatedDeltaRows` reads it."""

    slots_B: Tensor
    fresh_B: Tensor
    q_starts_B: Tensor
    q_lens_B: Tensor
    row_T: Tensor
    col_T: Tensor
    max_q: int
    decode: int
    num_lead_1: Tensor | None
    lead_rows: int
    schedule: int = 0


@frozen(kw_only=True, eq=False)
class Stream:
    """One row: this step's projections, and the state before it (zero where it is fresh)."""

    qkv_TC: Tensor
    z_TV: Tensor
    b_TH: Tensor
    a_TH: Tensor
    window_CK: Tensor
    state_HDE: Tensor


@frozen(kw_only=True, eq=False)
class Inputs:
    """A case in memory."""

    qkv_TC: Tensor
    z_TV: Tensor
    b_TH: Tensor
    a_TH: Tensor
    weights: GdnWeights
    pools: GdnPools
    plan: CasePlan
    slots: Tensor
    """int64: the slots of the real rows."""
    num_real: int
    """Tokens of real rows: they come first."""


def weights_of(case: Case, dtype: torch.dtype) -> GdnWeights:
    """Weights whose decay is mostly near 1, so that a stale state shows."""
    g, H = seeded(case.name, "weights"), case.num_v_heads
    return GdnWeights(
        conv_CK=(normal(g, case.channels, case.taps) / 2).to(dtype),
        A_log_H=normal(g, H) - 1,
        dt_bias_H=(normal(g, H) - 2).to(dtype),
        norm_D=1 + normal(g, case.v_dim) / 4,
    )


def stream_of(case: Case, row: int, dtype: torch.dtype) -> Stream:
    """The content of one row, which follows from the case's name and the row alone."""
    span, fresh = case.rows[row]
    g, H = seeded(case.name, row), case.num_v_heads
    qkv, z, b, a, window = (
        normal(g, *shape).to(dtype)
        for shape in (
            (span, case.channels),
            (span, H * case.v_dim),
            (span, H),
            (span, H),
            (case.channels, case.taps - 1),
        )
    )
    state = normal(g, H, case.k_dim, case.v_dim)
    live = 0.0 if fresh else 1.0
    return Stream(
        qkv_TC=qkv, z_TV=z, b_TH=b, a_TH=a, window_CK=window * live, state_HDE=state * live
    )


def lay(
    case: Case,
    *,
    dtype: torch.dtype = torch.float32,
    layout: int = 0,
    garbage: float = float("nan"),
    only: Sequence[int] | None = None,
) -> Inputs:
    """``case`` in memory, on the CPU.

    ``layout`` picks the slots; slots that no row may read, those of fresh rows too, hold
    ``garbage``. ``only`` takes some rows, without padding.
    """
    chosen = list(range(len(case.rows)) if only is None else only)
    pad_rows, pad_tokens, lead = (case.pad_rows, case.pad_tokens, case.lead)
    if only is not None:
        pad_rows = pad_tokens = lead = 0
    at = Packing.of([case.rows[r][0] for r in chosen], pad_rows, pad_tokens, case.decode, lead)
    S = len(case.rows) + 3
    slots = (torch.randperm(S - 1, generator=seeded("slots", layout)) + 1)[: len(case.rows)]
    conv = torch.full((S, case.channels, case.taps - 1), garbage, dtype=dtype)
    ssm = torch.full((S, case.num_v_heads, case.k_dim, case.v_dim), garbage)
    streams = [stream_of(case, r, dtype) for r in chosen]
    for r, s in zip(chosen, streams, strict=True):
        if not case.rows[r][1]:
            conv[slots[r]], ssm[slots[r]] = s.window_CK, s.state_HDE
    num_real = sum(len(s.qkv_TC) for s in streams)
    filler, spare = seeded("filler", layout), len(at.row_T) - num_real

    def pack(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([*parts, normal(filler, spare, parts[0].shape[1]).to(dtype)])

    return Inputs(
        qkv_TC=pack([s.qkv_TC for s in streams]),
        z_TV=pack([s.z_TV for s in streams]),
        b_TH=pack([s.b_TH for s in streams]),
        a_TH=pack([s.a_TH for s in streams]),
        weights=weights_of(case, dtype),
        pools=GdnPools(conv_SCK=conv, ssm_SHDE=ssm),
        plan=CasePlan(
            slots_B=torch.cat([slots[chosen], torch.zeros(pad_rows, dtype=torch.int64)]),
            fresh_B=torch.tensor([case.rows[r][1] for r in chosen] + [False] * pad_rows),
            **asdict(at),
        ),
        slots=slots[chosen],
        num_real=num_real,
    )
