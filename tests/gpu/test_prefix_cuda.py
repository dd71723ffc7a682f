"""Prefix reuse under CUDA graphs, on the ledger model: copies of slots in the stream's order."""

import pytest
import torch

from mstar_core.testing.cores import open_ledger, run_all
from mstar_core.testing.fuzz import fuzz_ledger
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.playing import poison

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
SETS = (
    "engine.graphs=cuda",
    "engine.max_rows=4",
    "engine.token_budget=32",
    "engine.in_flight=2",
    "nodes.ledger.resources.kv.page_tokens=16",
    "nodes.ledger.resources.state.snapshot_every=16",
    "nodes.ledger.resources.state.snapshots=12",
    "debug.row_check=true",
)


@pytest.mark.parametrize("fill", [float("nan"), 1e3], ids=["nan", "1e3"])
def test_five_turns_answer_as_cold(tmp_path, fill):
    core, _ = open_ledger(tmp_path, SETS, device="cuda")
    poison(core, fill)
    history, cached = [], []
    for turn in range(5):
        history += [(turn * 31 + i * 7) % 97 for i in range(30)]
        (found,) = run_all(core, [ledger_request(history, 1, 11)]).values()
        assert found.ids == continuation(history, 1, 11)
        cached.append(found.cached_tokens)
        history += found.ids
    assert cached == [0, 32, 80, 112, 160]
    core.check_rows()


def test_forty_random_schedules_are_right(tmp_path):
    assert fuzz_ledger(range(40), tmp_path, "cuda") == 40
