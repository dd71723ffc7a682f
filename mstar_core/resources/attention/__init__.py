"""Attention over a paged pool, or over the packed rows of a step."""

from mstar_core.resources.attention.plan import AttentionPlan, RaggedPlan
from mstar_core.resources.attention.resource import AttentionResource, PagedLayer, RaggedLayer

__all__ = ["AttentionPlan", "AttentionResource", "PagedLayer", "RaggedLayer", "RaggedPlan"]
