"""A GPU without memory for a step: fewer rows go together; who is too large alone fails."""

import pytest
import torch

from mstar_core.testing.cores import open_ledger, run_all
from mstar_core.testing.ledger import LedgerSubmodule, continuation, ledger_request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
SETS = ("engine.max_rows=8", "engine.max_context=64", "engine.graphs=off", "engine.in_flight=1")
POISONED = 5


def test_a_step_for_which_a_card_that_is_nearly_full_has_no_memory(tmp_path, monkeypatch):
    """Each row takes a fifth of what is free beside a tenant that holds nine tenths."""
    core, _ = open_ledger(tmp_path, SETS, device="cuda")
    free, _ = torch.cuda.mem_get_info()  # noqa: TID251
    tenant = torch.empty(free // 10 * 9, dtype=torch.uint8, device="cuda")
    row_bytes = torch.cuda.mem_get_info()[0] // 5  # noqa: TID251
    original, fitted = LedgerSubmodule.forward, []

    def forward(self, walk, inputs, plans):
        rows = len(plans["kv"].kv_lens_B)
        shares = 9 if (inputs["salt"] == POISONED).any() else rows
        taken = torch.empty(shares * row_bytes, dtype=torch.uint8, device="cuda")
        fitted.append(rows)
        outputs = original(self, walk, inputs, plans)
        del taken
        return outputs

    monkeypatch.setattr(LedgerSubmodule, "forward", forward)
    given = [ledger_request([n, 2, 3], n, 12, id=f"r{n}") for n in range(1, 9)]
    found = run_all(core, given)
    monkeypatch.undo()
    del tenant
    for n, one in enumerate(given, 1):
        if n == POISONED:
            assert found[one.id].finish_reason == "error"
            assert "no memory" in found[one.id].error["got"]
        else:
            assert found[one.id].ids == continuation([n, 2, 3], n, 12)
    assert max(fitted) in (3, 4)
    after = ledger_request([7, 8], 90, 9)
    assert run_all(core, [after])[after.id].ids == continuation([7, 8], 90, 9)
