"""The torch backend of ``gated_delta`` against the contract's cases."""

from mstar_core.ops.gated_delta.torch_backend import BACKEND
from mstar_core.testing import GatedDeltaContract


class TestTorchGatedDelta(GatedDeltaContract):
    backend = BACKEND
