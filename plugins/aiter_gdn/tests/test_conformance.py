"""The contract through the adapter, over fakes that compute in the library's own layouts."""

import aiter_fakes
import pytest
import torch
from attrs import evolve

from mstar_aiter_gdn.rule import DeltaRule
from mstar_core.testing.ops import GatedDeltaConformance


class Narrow(GatedDeltaConformance):
    """The library takes queries, keys and values in the model's dtype, and gives outputs so."""

    backend = aiter_fakes.BACKEND

    def check(self, case, x, got_TV, near):
        narrow = x.qkv_TC.dtype != torch.float32
        super().check(case, x, got_TV, 2 * near if narrow else near)


class TestFlydslAndChunks(Narrow):
    """Decode by FlyDSL; prompts by chunks in eager steps, token by token in graphs."""

    @pytest.fixture(autouse=True)
    def _a_tiling_for_every_size(self, monkeypatch):
        monkeypatch.setattr(DeltaRule, "tiles", lambda self, D, E: True)


class TestTokenByToken(Narrow):
    """What a graph runs, where FlyDSL has no tiling."""

    @pytest.fixture(autouse=True)
    def _no_tiling(self, monkeypatch):
        monkeypatch.setattr(DeltaRule, "tiles", lambda self, D, E: False)

    def ops(self, case, dtype):
        return evolve(super().ops(case, dtype), schedule=None)
