"""Sampling: penalties, filters, keyed noise, the chosen token and its log-probability."""

from mstar_core.ops.sampling.contract import PenaltyRows, Sampled, Sampling
from mstar_core.ops.sampling.plans import EnterPlan, PenaltyPlan, SamplePlan

__all__ = ["EnterPlan", "PenaltyPlan", "PenaltyRows", "SamplePlan", "Sampled", "Sampling"]
