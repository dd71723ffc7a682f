"""Gated delta mixers over recurrent slots."""

from mstar_core.resources.gated_delta.plan import GatedDeltaPlan
from mstar_core.resources.gated_delta.resource import GatedDeltaLayer, GatedDeltaResource

__all__ = ["GatedDeltaLayer", "GatedDeltaPlan", "GatedDeltaResource"]
