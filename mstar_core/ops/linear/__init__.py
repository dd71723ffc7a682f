"""Matrix products with what stands before and behind them."""

from mstar_core.ops.linear.contract import Linear

__all__ = ["Linear"]
