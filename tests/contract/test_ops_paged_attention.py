"""The torch backend and the definition of ``paged_attention`` against the contract's cases."""

from mstar_core.ops.paged_attention import PagedAttention, reference
from mstar_core.ops.paged_attention.torch_backend import BACKEND, TorchPagedAttention
from mstar_core.testing.ops import PagedAttentionConformance


class Definition(TorchPagedAttention):
    name = "definition"

    def bind(self, request):
        return PagedAttention(step=reference.step, attend=reference.attend, write=reference.write)


class TestTorchPagedAttention(PagedAttentionConformance):
    backend = BACKEND


class TestPagedAttentionByDefinition(PagedAttentionConformance):
    backend = Definition()
