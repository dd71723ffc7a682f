"""The torch backend and the definition of ``paged_attention`` against the contract's cases."""

from mstar_core.ops.paged_attention import PagedAttention, reference
from mstar_core.ops.paged_attention.torch_backend import BACKEND, TorchPagedAttention
from mstar_core.testing import PagedAttentionContract


class Definition(TorchPagedAttention):
    name = "definition"

    def bind(self, request):
        return PagedAttention(step=reference.step, attend=reference.attend, write=reference.write)


class TestTorchPagedAttention(PagedAttentionContract):
    backend = BACKEND


class TestPagedAttentionByDefinition(PagedAttentionContract):
    backend = Definition()
