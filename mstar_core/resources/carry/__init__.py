"""Carry rows: a node's outputs that its next step reads on the device."""

from mstar_core.resources.carry.plan import CarryPlan, CarryStep
from mstar_core.resources.carry.resource import CarryResource, carry_step

__all__ = ["CarryPlan", "CarryResource", "CarryStep", "carry_step"]
