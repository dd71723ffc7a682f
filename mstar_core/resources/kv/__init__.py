"""Paged keys and values."""

from mstar_core.resources.kv.plan import KVPlan
from mstar_core.resources.kv.resource import KVResource

__all__ = ["KVPlan", "KVResource"]
