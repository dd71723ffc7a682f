"""Sampling: penalties, filters, keyed noise, the chosen token and its log-probability."""

from mstar_core.ops.sampling.contract import (
    EnterPlan,
    PenaltyPlan,
    PenaltyRows,
    Sampled,
    SamplePlan,
    Sampling,
)

__all__ = ["EnterPlan", "PenaltyPlan", "PenaltyRows", "SamplePlan", "Sampled", "Sampling"]
