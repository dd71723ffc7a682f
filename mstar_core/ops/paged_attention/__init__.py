"""Attention over a pool of pages: write, attend, and the step around both."""

from mstar_core.ops.paged_attention.contract import AttentionStep, PagedAttention, PagedPlan

__all__ = ["AttentionStep", "PagedAttention", "PagedPlan"]
