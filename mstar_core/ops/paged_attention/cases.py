"""Cases of ``paged_attention``, their layouts in memory, and the slow obvious answer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import asdict, frozen
from torch import Tensor

from mstar_core.ops.cases import Packing, ints, normal, seeded


@frozen(kw_only=True)
class Case:
    """Rows of ``(before, span)`` tokens; the content follows from ``name`` and the row alone."""

    name: str
    rows: tuple[tuple[int, int], ...]
    decode: int = 0
    pad_rows: int = 0
    pad_tokens: int = 0
    lead: int = 0
    """Bound of the lead; 0: the step is not split."""
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    page_tokens: int = 8
    causal: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def scale(self) -> float:
        """The usual factor on scores."""
        return float(self.head_dim**-0.5)


CASES: tuple[Case, ...] = (
    Case(name="one-token", rows=((0, 1),)),
    Case(name="prompt", rows=((0, 17),)),
    Case(name="chunk-behind-a-prompt", rows=((13, 6),)),
    Case(name="packed", rows=((0, 5), (8, 1), (3, 12), (0, 1), (16, 8))),
    Case(name="packed-and-padded", rows=((0, 5), (9, 3)), pad_rows=3, pad_tokens=7),
    Case(name="padded-without-tokens", rows=((0, 5), (9, 3)), pad_rows=2),
    Case(name="zero-length-row", rows=((4, 3), (7, 0), (0, 2)), pad_rows=1, pad_tokens=1),
    Case(name="decode", rows=((0, 1), (7, 1), (8, 1), (30, 1)), decode=1),
    Case(name="decode-padded", rows=((5, 1), (24, 1)), decode=1, pad_rows=3),
    Case(name="not-causal", rows=((6, 4), (0, 3)), causal=False, pad_rows=1, pad_tokens=2),
    Case(name="heads-alone", rows=((2, 5), (9, 2)), num_heads=3, num_kv_heads=3, head_dim=16),
    Case(name="one-kv-head", rows=((2, 5), (9, 2)), num_heads=6, num_kv_heads=1, page_tokens=16),
)


def _mixed(name: str, *rows: tuple[int, int], lead: int = 3) -> Case:
    """A step of a bucket of 6 rows and 16 tokens: replays of one another, see ``SPLIT``."""
    left = 16 - sum(span for _, span in rows)
    return Case(name=name, rows=rows, pad_rows=6 - len(rows), pad_tokens=left, lead=lead)


SPLIT = (
    _mixed("decode-first", (9, 1), (20, 1), (0, 7), (5, 4)),
    _mixed("interleaved", (0, 7), (9, 1), (5, 4), (20, 1)),
    _mixed("no-decode", (0, 7), (5, 4), (20, 2), (9, 2)),
    _mixed("one-token-prompts", (9, 1), (20, 1), (0, 1), (5, 10)),
    _mixed("one-padding-token", (9, 1), (20, 1), (0, 8), (11, 5)),
    _mixed("a-row-of-no-tokens", (9, 1), (20, 0), (0, 8), (11, 5)),
    _mixed("more-than-the-lead", (9, 1), (20, 1), (0, 1), (11, 1)),
)
"""Layouts of one mixed bucket: the pages of a row have the same width and sum in each."""
CASES += (
    *SPLIT,
    Case(name="a-lead-alone", rows=((9, 1), (3, 1), (6, 1)), lead=3),
    Case(name="a-lead-and-a-prompt", rows=((9, 1), (3, 1), (2, 6)), lead=2),
    Case(name="a-lead-not-causal", rows=((9, 1), (3, 1), (2, 6)), lead=2, causal=False),
)


@frozen(kw_only=True, eq=False)
class CasePlan:
    """A step's plan, as :class:`~mstar_core.ops.paged_attention.contract.PagedPlan` reads it."""

    pages_BW: Tensor
    kv_lens_B: Tensor
    before_B: Tensor
    q_starts_B: Tensor
    q_lens_B: Tensor
    row_T: Tensor
    col_T: Tensor
    write_T: Tensor
    max_q: int
    decode: int
    num_lead_1: Tensor | None
    lead_rows: int
    schedule: int = 0


@frozen(kw_only=True, eq=False)
class Inputs:
    """A case in memory: the pools hold the history, this step's tokens are not yet written."""

    q_TND: Tensor
    k_TGD: Tensor
    v_TGD: Tensor
    k_PpGD: Tensor
    v_PpGD: Tensor
    plan: CasePlan
    num_real: int
    """Tokens of real rows: they come first."""


def streams(case: Case, row: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """``(q_TND, k_SGD, v_SGD)`` of one row: this step's queries, all keys and values."""
    before, span = case.rows[row]
    g, D = seeded(case.name, row), case.head_dim
    q = normal(g, span, case.num_heads, D)
    k, v = (normal(g, before + span, case.num_kv_heads, D) for _ in range(2))
    return q.to(dtype), k.to(dtype), v.to(dtype)


def lay(
    case: Case,
    *,
    dtype: torch.dtype = torch.float32,
    layout: int = 0,
    garbage: float = float("nan"),
    only: Sequence[int] | None = None,
) -> Inputs:
    """``case`` in memory, on the CPU.

    ``layout`` picks the pages; cells that no row may read hold ``garbage``. ``only`` takes some
    rows, without padding.
    """
    chosen = list(range(len(case.rows)) if only is None else only)
    pad_rows, pad_tokens, lead = (case.pad_rows, case.pad_tokens, case.lead)
    if only is not None:
        pad_rows = pad_tokens = lead = 0
    at = Packing.of([case.rows[r][1] for r in chosen], pad_rows, pad_tokens, case.decode, lead)
    pages_RW = page_tables(case, layout)
    T, p, D = len(at.row_T), case.page_tokens, case.head_dim
    pool = (int(pages_RW.max()) + 3, p, case.num_kv_heads, D)
    k_PpGD, v_PpGD = (torch.full(pool, garbage, dtype=dtype) for _ in range(2))
    filler, heads = seeded("filler", layout), (case.num_heads, *[case.num_kv_heads] * 2)
    q_TND, k_TGD, v_TGD = (normal(filler, T, n, D).to(dtype) for n in heads)
    write_T = torch.arange(T) % p  # the sink page, where nothing else is said
    first = 0
    for r in chosen:
        before, span = case.rows[r]
        t = torch.arange(before + span)
        slots = pages_RW[r, t // p].long() * p + t % p
        q, k, v = streams(case, r, dtype)
        k_PpGD.flatten(0, 1)[slots[:before]] = k[:before]
        v_PpGD.flatten(0, 1)[slots[:before]] = v[:before]
        here = slice(first, first + span)
        q_TND[here], write_T[here] = q, slots[before:]
        k_TGD[here], v_TGD[here] = k[before:], v[before:]
        first += span
    rows = [case.rows[r] for r in chosen]
    plan = CasePlan(
        pages_BW=torch.cat([pages_RW[chosen], pages_RW.new_zeros(pad_rows, pages_RW.shape[1])]),
        kv_lens_B=ints([sum(row) for row in rows] + [0] * pad_rows),
        before_B=ints([before for before, _ in rows] + [0] * pad_rows),
        write_T=write_T,
        **asdict(at),
    )
    pools = {"k_PpGD": k_PpGD, "v_PpGD": v_PpGD}
    return Inputs(q_TND=q_TND, k_TGD=k_TGD, v_TGD=v_TGD, plan=plan, num_real=first, **pools)


def page_tables(case: Case, layout: int) -> Tensor:
    """int32: the pages of every row in an order drawn from ``layout``, one spare column of 0."""
    counts = [-(-sum(row) // case.page_tokens) for row in case.rows]
    order = torch.randperm(sum(counts), generator=seeded("pages", layout)) + 1
    pages_RW = torch.zeros(len(counts), max(counts) + 1, dtype=torch.int32)
    first = 0
    for r, n in enumerate(counts):
        pages_RW[r, :n] = order[first : first + n]
        first += n
    return pages_RW


def oracle(case: Case, dtype: torch.dtype = torch.float32) -> Tensor:
    """fp32 ``o_TND`` of the real rows, one query and one head at a time."""
    out = []
    for r, (before, _) in enumerate(case.rows):
        q, k, v = (x.float() for x in streams(case, r, dtype))
        for c in range(len(q)):
            end = before + c + 1 if case.causal else len(k)
            for n in range(case.num_heads):
                g = n // (case.num_heads // case.num_kv_heads)
                weights = (k[:end, g] @ q[c, n] * case.scale).softmax(-1)
                out.append(weights @ v[:end, g])
    return torch.stack(out).view(-1, case.num_heads, case.head_dim)
