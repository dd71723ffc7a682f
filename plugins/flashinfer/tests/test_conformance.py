"""Every contract through the adapters, over fakes that compute in the library's own layouts."""

import pytest
import torch
from attrs import evolve
from flashinfer_fakes import Fa2, Filtered, Packed, Pooled

from mstar_core.testing.ops import (
    GatedDeltaConformance,
    PagedAttentionConformance,
    SamplingConformance,
)
from mstar_flashinfer.attention import paged


@pytest.fixture(autouse=True)
def _small_workspaces(monkeypatch):
    monkeypatch.setattr(paged, "WORKSPACE", 1024)


class TestPlanned(PagedAttentionConformance):
    """Eager steps are planned; captured ones are XQA's or refused."""

    backend = Fa2()


class TestXqa(PagedAttentionConformance):
    """A decode step that nobody has planned, as a graph and a resident step have it."""

    backend = Fa2()

    def ops(self, case, dtype):
        if not case.decode:
            pytest.skip("not a decode step")
        return evolve(super().ops(case, dtype), schedule=None)


class Narrow(GatedDeltaConformance):
    """The library takes queries, keys and values in the model's dtype, and gives outputs so."""

    def check(self, case, x, got_TV, near):
        narrow = x.qkv_TC.dtype != torch.float32
        super().check(case, x, got_TV, 2 * near if narrow else near)


class TestGatedDelta(Narrow):
    """Decode by slot in the pool, as newer versions do it."""

    backend = Pooled()


class TestGatedDeltaOfPackedStates(Narrow):
    """Decode of gathered states, as 0.6.6 does it."""

    backend = Packed()

    def ops(self, case, dtype):
        if not (case.decode or case.lead):
            pytest.skip("prefill is the same for both")
        return super().ops(case, dtype)


class TestSampling(SamplingConformance):
    backend = Filtered()
