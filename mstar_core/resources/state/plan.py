"""What one step may read and write of recurrent states."""

from __future__ import annotations

from mstar_core.step import Plan, Staged, plan_class


@plan_class
class StatePlan(Plan):
    """The slot of each row."""

    slots_B: Staged
    """int64; padding rows use the null slot 0."""
    fresh_B: Staged
    """bool: the slot holds nothing of this request yet, so the kernel starts from zero by
    select. Padding rows are fresh."""
