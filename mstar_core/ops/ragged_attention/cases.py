"""Cases of ``ragged_attention``, and the slow obvious answer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.ops.cases import Packing, normal, seeded


@frozen(kw_only=True)
class Case:
    """Rows of so many tokens; the content follows from ``name`` and the row alone."""

    name: str
    rows: tuple[int, ...]
    pad_rows: int = 0
    pad_tokens: int = 0
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    causal: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def scale(self) -> float:
        """The usual factor on scores."""
        return float(self.head_dim**-0.5)


CASES = (
    Case(name="one-row", rows=(9,)),
    Case(name="one-token-rows", rows=(1, 1, 1)),
    Case(name="packed", rows=(5, 1, 12, 3)),
    Case(name="packed-causal", rows=(5, 1, 12, 3), causal=True),
    Case(name="padded", rows=(4, 6), pad_rows=2, pad_tokens=5),
    Case(name="padded-causal", rows=(4, 6), pad_rows=2, pad_tokens=5, causal=True),
    Case(name="zero-length-row", rows=(3, 0, 2), pad_rows=1, pad_tokens=1),
    Case(name="heads-alone", rows=(7, 2), num_heads=3, num_kv_heads=3, head_dim=16),
)


@frozen(kw_only=True, eq=False)
class Inputs:
    """A case in memory; the plan is a :class:`~mstar_core.ops.cases.Packing`."""

    q_TND: Tensor
    k_TGD: Tensor
    v_TGD: Tensor
    plan: Packing
    num_real: int
    """Tokens of real rows: they come first."""


def streams(case: Case, row: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """``(q, k, v)`` of one row."""
    g, heads = seeded(case.name, row), (case.num_heads, case.num_kv_heads, case.num_kv_heads)
    q, k, v = (normal(g, case.rows[row], n, case.head_dim).to(dtype) for n in heads)
    return q, k, v


def lay(
    case: Case,
    *,
    dtype: torch.dtype = torch.float32,
    garbage: float = 1.0,
    only: Sequence[int] | None = None,
) -> Inputs:
    """``case`` in memory, on the CPU. Tokens of padding hold ``garbage``.

    ``only`` takes some rows, without padding.
    """
    chosen = range(len(case.rows)) if only is None else only
    pads = (0, 0) if only is not None else (case.pad_rows, case.pad_tokens)
    plan = Packing.of([case.rows[r] for r in chosen], *pads)
    rows = [streams(case, r, dtype) for r in chosen]
    spare = len(plan.row_T) - sum(case.rows[r] for r in chosen)
    q, k, v = (
        torch.cat([*parts, torch.full((spare, *parts[0].shape[1:]), garbage, dtype=dtype)])
        for parts in zip(*rows, strict=True)
    )
    return Inputs(q_TND=q, k_TGD=k, v_TGD=v, plan=plan, num_real=len(q) - spare)


def oracle(case: Case, dtype: torch.dtype = torch.float32) -> Tensor:
    """fp32 ``o_TND`` of the real rows, one query and one head at a time."""
    out = []
    for r in range(len(case.rows)):
        q, k, v = (x.float() for x in streams(case, r, dtype))
        for c in range(len(q)):
            end = c + 1 if case.causal else len(k)
            for n in range(case.num_heads):
                g = n // (case.num_heads // case.num_kv_heads)
                out.append((k[:end, g] @ q[c, n] * case.scale).softmax(-1) @ v[:end, g])
    return torch.stack(out).view(-1, case.num_heads, case.head_dim)
