"""What one step may read of positions."""

from __future__ import annotations

from mstar_core.step import Plan, Staged, plan_class


@plan_class
class PositionPlan(Plan):
    """Where each packed token stands in its stream; 0 for padding.

    The position that is encoded is the sum of both; whoever needs it adds them.
    """

    index_T: Staged
    """int64, the number of tokens before it."""
    offset_T: Staged
    """int64, the offset of the token's request."""
