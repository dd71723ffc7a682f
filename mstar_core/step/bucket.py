"""A bucket is a captured shape; a lease is the right to use one for one step."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True, order=True)
class Bucket:
    """A shape that is captured: everything a graph bakes in.

    ``rows`` and ``tokens`` are upper bounds that a step is padded to. A *decode* bucket has
    ``tokens == rows`` and holds one token per row; every other bucket packs ``tokens`` over at
    most ``rows`` rows. Unused tokens belong to one padding row. A *mixed* bucket is packed like any
    other, and may run up to ``lead`` leading rows of one token apart from the rest.
    """

    walk: str
    rows: int
    tokens: int
    kind: str
    """``decode`` (every row one token), ``prefill`` or ``mixed``; never read off spans equal by
    chance."""
    variant: int = 0
    """Union of the per-row needs that change the forward (see ``Resource.variant``)."""
    lead: int = 0
    """Leading one-token rows that are run apart at most, at most ``rows`` and ``tokens``."""

    @property
    def max_row_tokens(self) -> int:
        """The longest row that the bucket can hold."""
        return 1 if self.kind == "decode" else self.tokens

    def __str__(self) -> str:
        tail = f" v{self.variant}" if self.variant else ""
        lead = f" lead {self.lead}" if self.lead else ""
        return f"{self.walk} {self.rows}x{self.tokens}{lead}{tail}"


@frozen(kw_only=True)
class Lease:
    """A bucket's buffer set, held by one step. ``number`` is the set's index (0 when only one)."""

    bucket: Bucket
    number: int = 0
