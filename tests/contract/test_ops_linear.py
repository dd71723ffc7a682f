"""The torch backend of ``linear`` against the contract's cases."""

from mstar_core.ops.linear.torch_backend import BACKEND
from mstar_core.testing import LinearContract


class TestTorchLinear(LinearContract):
    backend = BACKEND
