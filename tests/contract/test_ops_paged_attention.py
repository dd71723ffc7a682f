"""The torch backend of ``paged_attention`` against the contract's cases."""

from mstar_core.ops.paged_attention.torch_backend import BACKEND
from mstar_core.testing.ops import PagedAttentionConformance


class TestTorchPagedAttention(PagedAttentionConformance):
    backend = BACKEND
