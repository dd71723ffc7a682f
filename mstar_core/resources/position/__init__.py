"""Positions and their rotary angles."""

from mstar_core.resources.position.plan import PositionPlan
from mstar_core.resources.position.resource import PositionResource

__all__ = ["PositionPlan", "PositionResource"]
