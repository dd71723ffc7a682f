"""What one step of a gated delta mixer may read."""

from __future__ import annotations

from mstar_core.step import Plan, Staged, plan_class


@plan_class
class GatedDeltaPlan(Plan):
    """The slots and the packed tokens of a step's rows."""

    slots_B: Staged
    """int64, the row's slot; 0 for padding."""
    fresh_B: Staged
    """bool, the row starts from zero."""
    q_starts_B: Staged
    """int32, the row's first token."""
    q_lens_B: Staged
    """int32, tokens of the row."""
    row_T: Staged
    """int32, the row of each token."""
    col_T: Staged
    """int32, the place of each token within its row."""
    max_q: int
    """No row has more tokens."""
    decode: int
    """1 where row i owns token i and nothing else."""
    num_lead_1: Staged | None = None
    """int32 ``[1]``, the leading one-token rows: row i owns token i there; None without a split."""
    lead_rows: int = 0
    """``num_lead_1`` is never more; 0 without a split."""
    schedule: int = 0
    """Of an eager step, what the backend planned on the host for it; 0: nothing."""
