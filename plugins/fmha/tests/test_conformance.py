"""The contract through the adapter, over fakes that compute in the library's own layouts."""

import fmha_fakes
import pytest

from mstar_core.testing.ops import PagedAttentionConformance
from mstar_fmha import backend


class TestFmha(PagedAttentionConformance):
    backend = fmha_fakes.BACKEND

    @pytest.fixture(autouse=True)
    def _a_small_workspace(self, monkeypatch):
        monkeypatch.setattr(backend, "WORKSPACE", 1024)
