"""Where the rows of a step lie among its packed tokens, padding included.

A decode bucket holds one token per row, padding rows too::

    token   0  1  2  3  4  5          rows 0-3 are real, 4 and 5 are padding
    row     0  1  2  3  4  5

Any other bucket packs rows one behind the other; what is left is one padding row::

    token   0  1  2  3  4  5  6  7    spans 3 and 2 in a bucket of 4 rows, 8 tokens
    row     0  0  0  1  1  2  2  2    row 2 is padding, row 3 has no token

A step of a combined walk that is split also has a lead, its leading run of one-token rows: there
row i owns token i too. What the lead may be at most follows from the bucket::

    token   0  1  2  3  4  5  6  7    spans 1, 1 and 4 in a bucket of lead 3
    row     0  1  2  2  2  2  3  3    the lead is rows 0 and 1; row 3 is padding, and never of it
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from mstar_core.step import Lease, ResourceStep


@frozen(kw_only=True, eq=False)
class Packing:
    """The layout of one step. ``B`` and ``T`` are the bucket's with a lease, else the step's."""

    num_rows: int
    """Real rows."""
    num_tokens: int
    """Real tokens."""
    starts_B: np.ndarray
    """int32, the first token of each row."""
    lens_B: np.ndarray
    """int32, the tokens of each row."""
    row_T: np.ndarray
    """int32, the row of each token."""
    col_T: np.ndarray
    """int32, the place of each token within its row."""
    max_row_tokens: int
    """At least as long as the longest row; the bucket's bound with a lease."""
    decode: int
    """1 where row i owns token i and nothing else."""
    lead_rows: int = 0
    """Rows of the lead at most: the bucket's with a lease, else the step's; 0 without a split."""
    num_lead: int = 0
    """Rows of the lead."""

    @property
    def num_lead_1(self) -> np.ndarray | None:
        """int32 ``[1]``, the rows of the lead; None without a split."""
        return np.asarray([self.num_lead], np.int32) if self.lead_rows else None

    def rows(self, values_B: np.ndarray, dtype: type = np.int64, fill: float = 0) -> np.ndarray:
        """One value per real row, padded to ``[B]`` with ``fill``."""
        if len(values_B) == len(self.lens_B):
            return values_B.astype(dtype, copy=False)
        padded: np.ndarray = np.full(len(self.lens_B), fill, dtype=dtype)
        padded[: self.num_rows] = values_B
        return padded

    def tokens(self, values_T: np.ndarray, dtype: type = np.int64) -> np.ndarray:
        """One value per real token, padded to ``[T]`` with 0."""
        if len(values_T) == len(self.row_T):
            return values_T.astype(dtype, copy=False)
        padded: np.ndarray = np.zeros(len(self.row_T), dtype=dtype)
        padded[: len(values_T)] = values_T
        return padded

    @property
    def last_B(self) -> np.ndarray:
        """int64, the last token of each row (a token of another row where it has none)."""
        last_B: np.ndarray = np.maximum(self.starts_B.astype(np.int64) + self.lens_B - 1, 0)
        return last_B


def pack(step: ResourceStep, lease: Lease | None) -> Packing:
    """The layout of ``step``, padded to the bucket of ``lease``."""
    if lease is not None and lease.bucket.kind == "decode":
        return _one_each(step.num_rows, lease.bucket.rows)
    spans_B = step.spans_B
    if lease is None and step.num_rows and bool((spans_B == 1).all()):
        return _one_each(step.num_rows, step.num_rows)
    num_tokens = step.num_tokens
    if lease is None:
        lens_B, longest = spans_B.astype(np.int32), int(spans_B.max(initial=0))
    else:
        lens_B, longest = np.zeros(lease.bucket.rows, np.int32), lease.bucket.max_row_tokens
        lens_B[: step.num_rows] = spans_B
        if num_tokens < lease.bucket.tokens:
            lens_B[step.num_rows] = lease.bucket.tokens - num_tokens
    starts_B = (np.cumsum(lens_B) - lens_B).astype(np.int32)
    row_T = np.repeat(np.arange(len(lens_B), dtype=np.int32), lens_B)
    col_T = np.arange(len(row_T), dtype=np.int32) - starts_B[row_T]
    run = leading_run(spans_B) if step.split else 0
    lead_rows = run if lease is None else lease.bucket.lead
    return Packing(
        num_rows=step.num_rows,
        num_tokens=num_tokens,
        starts_B=starts_B,
        lens_B=lens_B,
        row_T=row_T,
        col_T=col_T,
        max_row_tokens=longest,
        decode=0,
        lead_rows=lead_rows,
        num_lead=min(run, lead_rows),
    )


def _one_each(num_rows: int, width: int) -> Packing:
    index = np.arange(width, dtype=np.int32)
    return Packing(
        num_rows=num_rows,
        num_tokens=num_rows,
        starts_B=index,
        lens_B=np.ones(width, np.int32),
        row_T=index,
        col_T=np.zeros(width, np.int32),
        max_row_tokens=1,
        decode=1,
    )


def leading_run(spans_B: np.ndarray) -> int:
    """How many rows from the front have exactly one token."""
    others = np.flatnonzero(spans_B != 1)
    return int(others[0]) if len(others) else len(spans_B)


def positions(before_B: np.ndarray, spans_B: np.ndarray) -> np.ndarray:
    """int64 ``[T]``: each row counts on from ``before_B`` over its ``spans_B`` tokens."""
    ends_B = np.cumsum(spans_B)
    total = int(ends_B[-1]) if len(ends_B) else 0
    at_T: np.ndarray = np.arange(total) + np.repeat(before_B - (ends_B - spans_B), spans_B)
    return at_T


def leading_rows(need_B: np.ndarray, free: int) -> int:
    """How many rows from the front need no more than ``free`` together."""
    return int(np.searchsorted(np.cumsum(need_B), free, side="right"))
