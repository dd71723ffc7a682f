"""Every contract, in Triton's interpreter and on a GPU."""

import pytest

from mstar_core.engine.device import open_device
from mstar_core.testing.ops import (
    GatedDeltaConformance,
    LinearConformance,
    PagedAttentionConformance,
    RaggedAttentionConformance,
    SamplingConformance,
)
from mstar_triton.attention.paged import TritonPagedAttention
from mstar_triton.attention.ragged import TritonRaggedAttention
from mstar_triton.gated_delta.backend import TritonGatedDelta
from mstar_triton.linear.backend import TritonLinear
from mstar_triton.sampling.backend import TritonSampling

# Rows of NaN stay NaN, on a GPU without a word.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


class OnGpu:
    device = "cuda"

    def graphs(self):
        from mstar_core.engine.graphs_cuda import CudaGraphs

        return CudaGraphs(open_device("cuda"))


class Interpreted:
    """A backend as the interpreter runs it: on a CPU, which it refuses otherwise."""

    def available(self, device):
        return None


class InterpretedPagedAttention(Interpreted, TritonPagedAttention):
    pass


class TestPagedAttention(PagedAttentionConformance):
    backend = InterpretedPagedAttention()


@pytest.mark.gpu
class TestPagedAttentionOnGpu(OnGpu, PagedAttentionConformance):
    backend = TritonPagedAttention()


class InterpretedGatedDelta(Interpreted, TritonGatedDelta):
    pass


class TestGatedDelta(GatedDeltaConformance):
    backend = InterpretedGatedDelta()


@pytest.mark.gpu
class TestGatedDeltaOnGpu(OnGpu, GatedDeltaConformance):
    backend = TritonGatedDelta()


class InterpretedRaggedAttention(Interpreted, TritonRaggedAttention):
    pass


class TestRaggedAttention(RaggedAttentionConformance):
    backend = InterpretedRaggedAttention()


@pytest.mark.gpu
class TestRaggedAttentionOnGpu(OnGpu, RaggedAttentionConformance):
    backend = TritonRaggedAttention()


class InterpretedLinear(Interpreted, TritonLinear):
    pass


class TestLinear(LinearConformance):
    backend = InterpretedLinear()


@pytest.mark.gpu
class TestLinearOnGpu(OnGpu, LinearConformance):
    backend = TritonLinear()


class InterpretedSampling(Interpreted, TritonSampling):
    pass


class TestSampling(SamplingConformance):
    backend = InterpretedSampling()


@pytest.mark.gpu
class TestSamplingOnGpu(OnGpu, SamplingConformance):
    backend = TritonSampling()
