"""The tables of resident rows on a CUDA device: their kernels, and an engine that runs by them."""

import pytest
import torch

from mstar_core.engine.device import open_device
from mstar_core.ops.taking import take, taking_for
from mstar_core.resident.kernels import TORCH, kernels_for
from mstar_core.resources.kv.placing import place, placing_for
from mstar_core.resources.position.turning import turn, turning_for
from mstar_core.testing.cores import open_ledger, run_all
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.tables import TableKernelsConformance

pytestmark = pytest.mark.gpu

if not torch.cuda.is_available():  # noqa: TID251  (the device itself is under test)
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

CHOSEN = kernels_for(torch.device("cuda"))
SETS = (
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=128",
    "engine.capture.rows=[1,2,4,8]",
    "engine.capture.tokens=[16,64]",
    "engine.capture.require=true",
    "engine.graphs=cuda",
    "nodes.ledger.resources.kv.page_tokens=8",
)


class OnCuda(TableKernelsConformance):
    device = "cuda"

    def graphs(self, buffers):
        from mstar_core.engine.graphs_cuda import CudaGraphs

        return CudaGraphs(open_device("cuda"))


class TestChosenOnCuda(OnCuda):
    kernels = CHOSEN


class TestDefinitionsOnCuda(OnCuda):
    kernels = TORCH


def test_triton_is_chosen_on_a_gpu():
    assert CHOSEN.name == "triton"


def test_cells_past_two_to_the_31_are_reached():
    free, _ = torch.cuda.mem_get_info()  # noqa: TID251
    num_rows, num_cells = (1 << 21) + 4, 1024
    if free < 2 * num_rows * num_cells * 8:
        pytest.skip("less than 32 GiB of the device are free")
    store_RC = torch.zeros((num_rows, num_cells), dtype=torch.int64, device="cuda")
    last = num_rows - 2

    def there(*values):
        return torch.tensor(values, device="cuda")

    block = there(0, last), there(last * num_cells + 7), there(40), there(1)
    rows_BC, *_ = CHOSEN.begin(store_RC, *block, there(*[2] * 8))
    assert rows_BC[1, :9].tolist() == [0] * 7 + [40, 0]
    assert store_RC[last, :9].tolist() == [2] * 7 + [42, 0]
    assert not rows_BC[0].any()
    assert int(store_RC[:-1].count_nonzero()) == 8


def test_the_places_of_a_step_are_those_of_the_definition():
    cells = torch.randint(1, 900, (70, 1500), device="cuda")
    cells[:, 1] = torch.arange(70) * 1400
    real = torch.arange(70, device="cuda") % 3 != 0
    cells[~real] = 0
    given = cells[:, 1], cells[:, 3:], real, 64
    for mine, theirs in zip(placing_for(cells.device)(*given), place(*given), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("T", [1, 16, 3000])
@pytest.mark.parametrize("shape", [(), (7,), (3000,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.bool], ids=str)
def test_rows_are_taken_as_by_the_definition(shape, dtype, T):
    table = torch.randint(0, 50, (90, *shape), device="cuda").to(dtype)
    index = torch.randint(0, 90, (T, 3), device="cuda")[:, 2]
    assert torch.equal(taking_for(table.device)(table, index), take(table, index))


@pytest.mark.parametrize("T", [1, 16, 3000])
def test_positions_turn_as_by_the_definition(T):
    cells = torch.randint(0, 1 << 18, (T, 3), device="cuda")
    frequency = 1e7 ** -torch.linspace(0, 1, 64, device="cuda")
    given = cells[:, 1], cells[:, 2] % 900 - 450, frequency
    for mine, theirs in zip(turning_for(cells.device)(*given), turn(*given), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-7, rtol=0)


@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
def test_resident_rows_decode_every_token_of_the_ledger(tmp_path, in_flight):
    """More requests than rows of a step, pages of 8: rows cross, join, end and change places."""
    core, report = open_ledger(tmp_path, (*SETS, f"engine.in_flight={in_flight}"), device="cuda")
    given = {
        f"r{i}": ledger_request([(7 * i + j) % 97 for j in range(5 + 3 * i)], i + 1, 40, id=f"r{i}")
        for i in range(11)
    }
    found = run_all(core, given.values())
    for i, (name, request) in enumerate(given.items()):
        assert found[name].ids == continuation(request.arrays["ids"].tolist(), i + 1, 40)
    stats, tables = core.stats(), core.nodes["ledger"].tables
    assert [node.resident_walks for node in report.nodes] == [("decode",)]
    assert tables.kernels is CHOSEN
    assert stats["eager"] == 0
    assert tables.counts.steps == stats["by_walk"]["decode"]
    assert tables.counts.crossing_steps > 0
    assert tables.counts.whole_rows >= len(given)


def test_resident_on_and_off_give_the_same_tokens(tmp_path):
    given = [ledger_request(list(range(3, 9 + i)), i + 1, 30, id=f"r{i}") for i in range(8)]
    found = []
    for resident in ("auto", "off"):
        sets = (*SETS, f"engine.resident={resident}")
        core, report = open_ledger(tmp_path / resident, sets, device="cuda")
        results = run_all(core, given)
        found.append({name: result.ids for name, result in results.items()})
        assert bool(report.nodes[0].resident_walks) == (resident == "auto")
    assert found[0] == found[1]
