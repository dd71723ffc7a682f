"""What one step may read and write of carry rows."""

from __future__ import annotations

import numpy as np
from attrs import define

from mstar_core.step import Plan, ResourceStep, Staged, plan_class


@define(kw_only=True, eq=False)
class CarryStep(ResourceStep):
    """The declaration for ``carry`` and for ``sampler``: where inputs come from, who samples."""

    carry_B: np.ndarray
    """bool: the row's looped inputs are read from its carry row."""
    samples_B: np.ndarray
    """bool: the row's last item yields an output that loops."""

    def first(self, num_rows: int) -> CarryStep:
        return CarryStep(
            key=self.key,
            handles_B=self.handles_B[:num_rows],
            spans_B=self.spans_B[:num_rows],
            label=self.label,
            split=self.split,
            carry_B=self.carry_B[:num_rows],
            samples_B=self.samples_B[:num_rows],
        )


@plan_class
class CarryPlan(Plan):
    """The carry row of each row and token; row 0 is trash."""

    read_T: Staged
    """int64, the row that the token is read from; 0 where it comes from the host."""
    is_carry_T: Staged
    """bool, the token comes from its row."""
    write_B: Staged
    """int64, where a looped output goes; 0 for a row that does not sample, and for padding."""
    row_B: Staged
    """int64, the row that the request holds; 0 for padding."""
    fresh_B: Staged
    """bool, nothing has been written to the row; padding rows are fresh."""
