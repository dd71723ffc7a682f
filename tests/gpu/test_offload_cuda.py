"""Offload, reload and the row check under CUDA graphs, on the ledger model."""

import pytest
import torch

from mstar_core.testing.loads import LOADS
from mstar_core.testing.row_check import ledger_player

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_no_cell_differs_while_rows_come_and_go(tmp_path, load):
    report = ledger_player(load, tmp_path, "cuda").play(3000)
    assert report.rows >= 3000
    assert report.mismatches == 0
    assert (report.displaced > 1500) == (load.name == "slots")
    assert (report.offloads > 0) == (load.offload > 0)
