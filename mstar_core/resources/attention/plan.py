"""What one step of an attention may read."""

from __future__ import annotations

from mstar_core.step import Plan, Staged, plan_class


@plan_class
class AttentionPlan(Plan):
    """Queries of packed rows against a paged pool."""

    pages_BW: Staged
    """int32, the pages of each row."""
    kv_lens_B: Staged
    """int32, tokens that the row's queries may read; 0 for padding."""
    before_B: Staged
    """int32, the position of the row's first query."""
    q_starts_B: Staged
    """int32, the row's first query among the packed tokens."""
    q_lens_B: Staged
    """int32, queries of the row."""
    row_T: Staged
    """int32, the row of each token."""
    col_T: Staged
    """int32, the place of each token within its row."""
    write_T: Staged
    """int64, where the token's key and value go (see ``KVPlan``)."""
    max_q: int
    """No row has more queries."""
    decode: int
    """1 where row i owns token i and nothing else."""
    num_lead_1: Staged | None = None
    """int32 ``[1]``, the leading one-token rows: row i owns token i there; None without a split."""
    lead_rows: int = 0
    """``num_lead_1`` is never more; 0 without a split."""
    schedule: int = 0
    """Of an eager step, what the backend planned on the host for it; 0: nothing."""


@plan_class
class RaggedPlan(Plan):
    """Queries of packed rows against the keys and values of the same rows."""

    q_starts_B: Staged
    """int32, the row's first token."""
    q_lens_B: Staged
    """int32, tokens of the row; a padding row attends over itself."""
    row_T: Staged
    """int32, the row of each token."""
    col_T: Staged
    """int32, the place of each token within its row."""
    max_q: int
    """No row has more tokens."""
