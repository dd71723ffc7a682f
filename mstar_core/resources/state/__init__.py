"""Recurrent state: one slot per request."""

from mstar_core.resources.state.plan import StatePlan
from mstar_core.resources.state.resource import StateResource

__all__ = ["StatePlan", "StateResource"]
