"""The torch backend of ``sampling`` against the contract's cases."""

from mstar_core.ops.sampling.torch_backend import BACKEND
from mstar_core.testing import SamplingContract


class TestTorchSampling(SamplingContract):
    backend = BACKEND
