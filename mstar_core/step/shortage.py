"""The answer of a finite resource that has too little left."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Shortage:
    """Not enough of something finite; the scheduler answers it, nothing was changed."""

    key: str
    """The resource that is short."""
    need: int
    """Units that the step (or the opening) asks for beyond what it holds."""
    free: int
    """Units free now."""
    cooling: int = 0
    """Units that become free once entries in flight are retired."""
    rows_that_fit: int = 0
    """How many leading rows of the step would have had room."""
    unit: str = "pages"

    def __str__(self) -> str:
        left = f"{self.free} free, {self.cooling} cooling"
        return f"{self.key}: {self.need} {self.unit} needed, {left}"
