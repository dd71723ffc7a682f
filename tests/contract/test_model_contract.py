"""The contract of models on the ledger model, which has an oracle."""

import pytest

from mstar_core.testing import ModelContract
from mstar_core.testing.contracts.opened import Opened
from mstar_core.testing.cores import LEDGER, open_wired
from mstar_core.testing.ledger import continuation, ledger_request


class TestTheLedgerKeepsTheContract(ModelContract):
    ref = LEDGER

    def open(self, folder, *sets, lag=None):
        small = ("engine.max_rows=4", "engine.token_budget=64", "engine.max_context=128")
        pages = "nodes.ledger.resources.kv.page_tokens=8"
        core, wired, report = open_wired(self.ref, folder, (*small, pages, *sets), lag)
        return Opened(core=core, wired=wired, report=report)

    def requests(self, front):
        return [
            ledger_request(range(first, first + length), salt, new)
            for salt, (first, length, new) in enumerate(
                [(1, 9, 12), (30, 1, 9), (5, 41, 17), (2, 16, 1), (60, 8, 20)]
            )
        ]

    def oracle(self, request):
        ids, salt = request.arrays["ids"].tolist(), int(request.arrays["salt"][0])
        return continuation(ids, salt, request.max_new_tokens)

    def test_the_name_map_uses_the_checkpoint_up(self, tmp_path):
        pytest.skip("the ledger model has no weights")
