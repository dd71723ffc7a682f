"""What one step may read of positions."""

from __future__ import annotations

from mstar_core.step import Plan, Staged, plan_class


@plan_class
class PositionPlan(Plan):
    """Where each packed token stands in its stream; 0 for padding."""

    positions_T: Staged
    """int64, the position that is encoded: the index plus the request's offset."""
    index_T: Staged
    """int64, the number of tokens before it."""
