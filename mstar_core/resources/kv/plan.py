"""What one step may read and write of a KV pool."""

from __future__ import annotations

from mstar_core.step import Plan, Staged, plan_class


@plan_class
class KVPlan(Plan):
    """Block tables and write places of a step's rows."""

    pages_BW: Staged
    """int32, the pages of each row in order; unused places name the sink page 0."""
    before_B: Staged
    """int32, tokens of each row before the step."""
    kv_lens_B: Staged
    """int32, tokens that may be read in the step, those it adds included."""
    write_T: Staged
    """int64, where each added token goes: ``page * page_tokens + offset``; padding goes to 0."""
    W: int
    """Width of the block table in pages."""
