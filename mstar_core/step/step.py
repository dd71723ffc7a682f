"""One batch's declaration: who takes part, by how many tokens, and one part per resource."""

from __future__ import annotations

import numpy as np
from attrs import define, field

from mstar_core.step.bucket import Lease


@define(kw_only=True, eq=False)
class ResourceStep:
    """What one step does to one resource: row i adds ``spans_B[i]`` tokens to its stream.

    A span of 0 reads the stream without adding to it. The stream is the one named ``label``.
    """

    key: str
    handles_B: np.ndarray
    """int64, one request handle per row."""
    spans_B: np.ndarray
    """int64, tokens (or frames) that each row adds to this resource; 0 reads only."""
    label: str = "main"
    split: bool = False
    """A combined walk: its leading run of one-token rows may be run apart from the rest."""

    @property
    def num_rows(self) -> int:
        """Rows of the batch, padding not counted."""
        return len(self.handles_B)

    @property
    def num_tokens(self) -> int:
        """Tokens added over all rows."""
        return int(self.spans_B.sum())

    def first(self, num_rows: int) -> ResourceStep:
        """The same declaration for the leading ``num_rows`` rows."""
        return ResourceStep(
            key=self.key,
            handles_B=self.handles_B[:num_rows],
            spans_B=self.spans_B[:num_rows],
            label=self.label,
            split=self.split,
        )


@define(kw_only=True, eq=False)
class Step:
    """One batch over one node: rows in order, with everything retiring it will need."""

    node: str
    walk: str
    handles_B: np.ndarray
    """int64, one request handle per row."""
    spans_B: np.ndarray
    """int64, input items (tokens, windows, frames) of each row."""
    carry_B: np.ndarray
    """bool: the row's looped inputs come from its carry row, not from the host (source carry)."""
    samples_B: np.ndarray
    """bool: the row's last item yields an output that loops back and is read by the host."""
    starts_B: np.ndarray
    """int64, index of the row's first item within its walk's input (0 for a loop)."""
    parts: dict[str, ResourceStep] = field(factory=dict)
    """One declaration per resource key."""
    lease: Lease | None = None
    number: int = -1
    """The entry number, given at launch."""

    @property
    def num_rows(self) -> int:
        """Rows of the batch, padding not counted."""
        return len(self.handles_B)

    @property
    def num_tokens(self) -> int:
        """Input items over all rows."""
        return int(self.spans_B.sum())
