"""How a resource runs a combined walk as two kernels."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True, order=True)
class CombinedSplit:
    """One combined walk run as two kernels: its one-token rows first, then all other rows."""

    walk: str
    """The combined walk."""
    decode_walks: tuple[str, ...]
    """Its walks that bring one token a row."""
    prefill_walks: tuple[str, ...]
    """Its walks that bring several tokens a row; every one of them must be named."""
    max_decode_rows: int
    """The most one-token rows of a step (at least 1)."""
