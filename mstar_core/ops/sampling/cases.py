"""Cases of ``sampling``, and the slow obvious answer in numpy, one row and one id at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from attrs import field, frozen
from torch import Tensor

from mstar_core.ops.cases import normal, seeded

NEVER = float("-inf")


@frozen(kw_only=True)
class RowSettings:
    """One row's scalars."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 7
    position: int = 11


@frozen(kw_only=True)
class Case:
    """Rows with settings of their own over ``vocab`` logits; ``kind`` shapes the logits."""

    name: str
    rows: tuple[RowSettings, ...]
    vocab: int = 50
    kind: str = field(default="normal")
    """``normal``, ``ties`` (few different values) or ``masked`` (most are -inf)."""
    sampled: int = 1
    top_logprobs: int = 0
    draw: int = 0

    def __str__(self) -> str:
        return self.name


_R = RowSettings
_MIXED = (
    _R(temperature=0.0),
    _R(temperature=0.7, top_k=5, seed=-(2**63), position=0),
    _R(temperature=1.3, top_p=0.8, seed=2**63 - 1),
    _R(temperature=1.0, min_p=0.2, position=2**31),
    _R(temperature=0.9, top_k=20, top_p=0.9, min_p=0.05, seed=0),
    _R(temperature=1e-6, top_p=1e-4),
)
CASES = (
    Case(name="greedy", rows=(_R(temperature=0.0), _R(temperature=0.0)), sampled=0),
    Case(name="greedy-with-top-logprobs", rows=(_R(temperature=0.0),), sampled=0, top_logprobs=5),
    Case(name="plain", rows=tuple(_R(seed=s, position=p) for s in range(4) for p in range(4))),
    Case(name="mixed", rows=_MIXED, top_logprobs=3),
    Case(name="mixed-another-draw", rows=_MIXED, draw=1),
    Case(name="mixed-masked", rows=_MIXED, kind="masked", top_logprobs=20),
    Case(name="ties", rows=_MIXED, kind="ties"),
    Case(name="top-k", rows=tuple(_R(top_k=k) for k in (-1, 0, 1, 2, 49, 50, 51, 9_999_999))),
    Case(name="top-p", rows=tuple(_R(top_p=p) for p in (1e-6, 0.1, 0.5, 0.999, 1.0))),
    Case(name="min-p", rows=tuple(_R(min_p=p) for p in (0.0, 1e-3, 0.5, 1.0))),
    Case(name="cold", rows=tuple(_R(temperature=t) for t in (1e-3, 1e-4, 1e-5, 1e-6, 1e-30, 0.0))),
    Case(name="more-logprobs-than-ids", rows=(_R(),), vocab=6, top_logprobs=20),
)


@frozen(kw_only=True, eq=False)
class CasePlan:
    """A step's plan, as :class:`~mstar_core.ops.sampling.plans.SamplePlan` reads it."""

    temperature_B: Tensor
    top_k_B: Tensor
    top_p_B: Tensor
    min_p_B: Tensor
    seed_B: Tensor
    position_B: Tensor
    sampled: int
    top_logprobs: int


@frozen(kw_only=True, eq=False)
class Inputs:
    """A case in memory."""

    logits_BV: Tensor
    plan: CasePlan
    draw: int


def plan_of(rows: Sequence[RowSettings], sampled: int = 1, top_logprobs: int = 0) -> CasePlan:
    """The plan of rows with these settings."""
    return CasePlan(
        temperature_B=torch.tensor([r.temperature for r in rows], dtype=torch.float32),
        top_k_B=torch.tensor([r.top_k for r in rows], dtype=torch.int32),
        top_p_B=torch.tensor([r.top_p for r in rows], dtype=torch.float32),
        min_p_B=torch.tensor([r.min_p for r in rows], dtype=torch.float32),
        seed_B=torch.tensor([r.seed for r in rows], dtype=torch.int64),
        position_B=torch.tensor([r.position for r in rows], dtype=torch.int64),
        sampled=sampled,
        top_logprobs=top_logprobs,
    )


def lay(
    case: Case, *, dtype: torch.dtype = torch.float32, only: Sequence[int] | None = None
) -> Inputs:
    """``case`` in memory, on the CPU; ``only`` takes some rows."""
    chosen = range(len(case.rows)) if only is None else only
    logits = torch.stack([_logits(case, row) for row in chosen]).to(dtype)
    plan = plan_of([case.rows[r] for r in chosen], case.sampled, case.top_logprobs)
    return Inputs(logits_BV=logits, plan=plan, draw=case.draw)


def _logits(case: Case, row: int) -> Tensor:
    g = seeded(case.name, row)
    x = normal(g, case.vocab) * 2
    if case.kind == "ties":
        x = x.round()
    if case.kind == "masked":
        x[torch.randperm(case.vocab, generator=g)[8:]] = NEVER
    return x


def keyed_bits(seed: int, position: int, draw: int, token: int) -> int:
    """The 32 random bits of one id, in plain integers."""
    mask32, mask64 = (1 << 32) - 1, (1 << 64) - 1
    z = (
        seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + draw * 0x8CB92BA72F3D8DD7
    ) & mask64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask64
    z ^= z >> 31
    h = (token * 0x9E3779B1 + (z & mask32)) & mask32
    h = (((h ^ (h >> 16)) * 0x7FEB352D) & mask32) ^ (z >> 32)
    h = ((h ^ (h >> 15)) * 0x846CA68B) & mask32
    h = ((h ^ (h >> 16)) * 0x2C1B3C6D) & mask32
    return h ^ (h >> 16)


def survivors(logits_V: np.ndarray, row: RowSettings) -> list[int]:
    """Ids that the row's filters leave, likeliest first."""
    x = logits_V.astype(np.float64) / row.temperature
    order = sorted((i for i in range(len(x)) if x[i] > NEVER), key=lambda i: (-x[i], i))
    if row.top_k > 0:
        order = order[: row.top_k]
    share = np.exp(x[order] - x[order[0]])
    share /= share.sum()
    before = np.concatenate([[0.0], np.cumsum(share)[:-1]])
    kept = [
        i
        for i, p, sum_before in zip(order, share, before, strict=True)
        if (row.top_p >= 1 or sum_before < row.top_p) and p >= row.min_p * share[0]
    ]
    return kept or order[:1]


def oracle_id(logits_V: np.ndarray, row: RowSettings, draw: int) -> int:
    """The id that the row samples."""
    if row.temperature < 1e-5:
        return int(logits_V.argmax())
    best, chosen = NEVER, -1
    for token in survivors(logits_V, row):
        u = (keyed_bits(row.seed, row.position, draw, token) + 0.5) / 2**32
        noisy = logits_V[token] / row.temperature - np.log(-np.log1p(-min(u, 1 - 2**-24)))
        if noisy > best:
            best, chosen = float(noisy), token
    return chosen
