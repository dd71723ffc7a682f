"""The gated delta rule: causal convolution, gates, recurrent state, gated norm."""

from mstar_core.ops.gated_delta.contract import GatedDelta, GatedDeltaRows, GdnPools, GdnWeights

__all__ = ["GatedDelta", "GatedDeltaRows", "GdnPools", "GdnWeights"]
