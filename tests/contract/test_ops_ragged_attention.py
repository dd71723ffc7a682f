"""The torch backend and the definition of ``ragged_attention`` against the contract's cases."""

from mstar_core.ops.ragged_attention import RaggedAttention, reference
from mstar_core.ops.ragged_attention.torch_backend import BACKEND, TorchRaggedAttention
from mstar_core.testing import RaggedAttentionContract


class Definition(TorchRaggedAttention):
    name = "definition"

    def bind(self, request):
        return RaggedAttention(attend=reference.attend)


class TestTorchRaggedAttention(RaggedAttentionContract):
    backend = BACKEND


class TestRaggedAttentionByDefinition(RaggedAttentionContract):
    backend = Definition()
