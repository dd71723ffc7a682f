"""Resident decode: per-request state in device tables that a captured step reads and advances."""

from mstar_core.resident.layout import RowLayout
from mstar_core.resident.planner import ResidentPlanner
from mstar_core.resident.slots import SlotCache
from mstar_core.resident.writes import ResidentWrites

__all__ = ["ResidentPlanner", "ResidentWrites", "RowLayout", "SlotCache"]
