"""The torch backends on a CUDA device, eager and under CUDA graphs."""

import pytest
import torch

from mstar_core.engine.device import open_device
from mstar_core.ops.gated_delta.torch_backend import BACKEND as GATED_DELTA
from mstar_core.ops.linear.torch_backend import BACKEND as LINEAR
from mstar_core.ops.paged_attention.torch_backend import BACKEND as PAGED_ATTENTION
from mstar_core.ops.ragged_attention.torch_backend import BACKEND as RAGGED_ATTENTION
from mstar_core.ops.sampling.torch_backend import BACKEND as SAMPLING
from mstar_core.testing.ops import (
    GatedDeltaConformance,
    LinearConformance,
    PagedAttentionConformance,
    RaggedAttentionConformance,
    SamplingConformance,
)

pytestmark = pytest.mark.gpu

if not torch.cuda.is_available():  # noqa: TID251  (the device itself is under test)
    pytest.skip("torch sees no CUDA device", allow_module_level=True)


class OnCuda:
    device = "cuda"

    def graphs(self):
        from mstar_core.engine.graphs_cuda import CudaGraphs

        return CudaGraphs(open_device("cuda"))


class TestPagedAttentionOnCuda(OnCuda, PagedAttentionConformance):
    backend = PAGED_ATTENTION


class TestRaggedAttentionOnCuda(OnCuda, RaggedAttentionConformance):
    backend = RAGGED_ATTENTION


class TestGatedDeltaOnCuda(OnCuda, GatedDeltaConformance):
    backend = GATED_DELTA


class TestSamplingOnCuda(OnCuda, SamplingConformance):
    backend = SAMPLING


class TestLinearOnCuda(OnCuda, LinearConformance):
    backend = LINEAR
