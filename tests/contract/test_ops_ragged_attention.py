"""The torch backend of ``ragged_attention`` against the contract's cases."""

from mstar_core.ops.ragged_attention.torch_backend import BACKEND
from mstar_core.testing.ops import RaggedAttentionConformance


class TestTorchRaggedAttention(RaggedAttentionConformance):
    backend = BACKEND
