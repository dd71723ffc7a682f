"""What one step of a sampler may read."""

from __future__ import annotations

from mstar_core.step import Plan, Staged, plan_class

SAMPLED = 1
"""Variant bit: some row draws at random."""
PENALISED = 2
"""Variant bit: some row has penalties or a bias."""
TOP_LOGPROBS = 4
"""Variant bit: some row reports the likeliest tokens."""

DRAWS = ("temperature_B", "top_k_B", "top_p_B", "min_p_B", "seed_B", "position_B")
"""What only a step reads that draws at random, or keeps the settings."""
RULED = ("generated_B", "fresh_B", "enabled_BR")
"""What only a step with logit rules reads."""


@plan_class
class SamplerPlan(Plan):
    """The settings of each row that samples; padding rows are greedy and write nothing kept."""

    last_B: Staged
    """int64, the last packed token of each row."""
    temperature_B: Staged
    """float32; below 1e-5 the likeliest token is taken."""
    top_k_B: Staged
    """int32; 0 keeps all."""
    top_p_B: Staged
    """float32; 1 keeps all."""
    min_p_B: Staged
    """float32; 0 keeps all."""
    seed_B: Staged
    """int64."""
    position_B: Staged
    """int64, the position in the stream of the token that is chosen."""
    generated_B: Staged
    """int32, tokens chosen before."""
    fresh_B: Staged
    """bool, the row has chosen none; padding rows are fresh."""
    carry_row_B: Staged
    """int64, where the rules' state is kept; padding reads row 0."""
    carry_write_B: Staged
    """int64, where it is written: row 0 for a row that does not sample."""
    enabled_BR: Staged = None
    """bool, which logit rules apply to the row. None where there are no rules."""
    penalty_row_B: Staged = None
    """int64, the row's past; 0, which stays zero, where the request needs none, where the row does
    not sample, and for padding. None, like the three below, where no row is penalised."""
    repetition_B: Staged = None
    """float32; 1 leaves the logits as they are."""
    presence_B: Staged = None
    """float32."""
    frequency_B: Staged = None
    """float32."""
    fresh_row_B: Staged = None
    """int64, penalty rows that begin in this step. None, like the five below, where none does."""
    prompt_row_K: Staged = None
    """int64, with ``prompt_ids_K``: a token of the prompt of a row that begins."""
    prompt_ids_K: Staged = None
    """int64."""
    bias_row_K: Staged = None
    """int64, with ``bias_ids_K`` and ``bias_K``: a logit bias of a row that begins."""
    bias_ids_K: Staged = None
    """int64."""
    bias_K: Staged = None
    """float32."""
    sampled: int = 0
    """1: some row may draw at random."""
    penalised: int = 0
    """1: some row may have penalties or a bias."""
    keeps: int = 0
    """1: the settings above are kept by carry row, for the resident steps that follow."""
    every: int = 0
    """1: token i is row i's last, as in a decode bucket, whose padding rows have one too."""
    top_logprobs: int = 0
    """How many of the likeliest tokens are reported."""

    def resident_lacks(self) -> frozenset[str]:
        draws = () if self.sampled else DRAWS
        return frozenset((*draws, *(RULED if self.enabled_BR is None else ())))
