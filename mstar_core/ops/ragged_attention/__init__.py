"""Attention among the packed tokens of each row, without a pool."""

from mstar_core.ops.ragged_attention.contract import RaggedAttention, RaggedPlan

__all__ = ["RaggedAttention", "RaggedPlan"]
