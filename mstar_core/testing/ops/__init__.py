"""Conformance of kernel backends: one class per operation, to subclass in a backend's own suite.

::

    from mstar_core.testing.ops import GatedDeltaConformance

    class TestFastGatedDelta(GatedDeltaConformance):
        backend = BACKEND
        device = "cuda"
        dtypes = (torch.bfloat16,)

Every case of the contract is compared with its slow fp32 answer. A case that the backend's
``supports`` refuses is skipped with the refusal as its reason.
"""

from mstar_core.testing.ops.attention import PagedAttentionConformance
from mstar_core.testing.ops.base import OpConformance
from mstar_core.testing.ops.gated_delta import GatedDeltaConformance
from mstar_core.testing.ops.linear import LinearConformance
from mstar_core.testing.ops.ragged_attention import RaggedAttentionConformance
from mstar_core.testing.ops.sampling import SamplingConformance

__all__ = [
    "GatedDeltaConformance",
    "LinearConformance",
    "OpConformance",
    "PagedAttentionConformance",
    "RaggedAttentionConformance",
    "SamplingConformance",
]
