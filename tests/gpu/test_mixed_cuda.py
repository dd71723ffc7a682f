"""Mixed and wide buckets as CUDA graphs: prompts beside decodes, and 256 rows in one step."""

import pytest
import torch

from mstar_core.engine.opening import open_core
from mstar_core.model.front import Request
from mstar_core.testing.cores import arriving, open_ledger, run_all
from mstar_core.testing.ledger import continuation, ledger_request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
SETS = (
    "engine.graphs=cuda",
    "engine.capture.require=true",
    "engine.mixed=on",
    "engine.min_chunk=1",
    "engine.prefix_cache=off",
    "debug.row_check=true",
)


@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
def test_prompts_beside_decodes_change_no_token_and_no_step_is_eager(tmp_path, in_flight):
    sets = (
        "engine.max_rows=8",
        "engine.max_context=256",
        "engine.token_budget=64",
        "engine.capture.rows=[1,4,8]",
        "engine.capture.tokens=[4,16,64]",
        f"engine.in_flight={in_flight}",
        "nodes.ledger.resources.kv.page_tokens=8",
    )
    core, _ = open_ledger(tmp_path, (*SETS, *sets), device="cuda")
    prompts = [[(31 * i + 7 * j) % 97 for j in range(n)] for i, n in enumerate((5, 30, 1, 70, 9))]
    given = [ledger_request(ids, i + 1, 24, id=f"r{i}") for i, ids in enumerate(prompts)]
    found = arriving(core, given)
    for i, request in enumerate(given):
        assert found[request.id].ids == continuation(prompts[i], i + 1, 24)
    stats = core.stats()
    assert stats["by_walk"]["mixed"] > 0
    assert stats["eager"] == 0


def test_a_model_with_every_kind_of_resource_mixes_in_graphs_alone():
    sets = (
        "device=cuda",
        "model.dtype=fp32",
        "engine.max_rows=4",
        "engine.max_context=256",
        "engine.token_budget=64",
        "engine.capture.tokens=[16,64]",
        "engine.in_flight=2",
    )
    given = [
        Request(
            id=f"r{i}",
            arrays={"ids": (torch.arange(4 + 9 * i) * 11 % 200).numpy()},
            max_new_tokens=20,
            ignore_stop_ids=True,
        )
        for i in range(6)
    ]
    core, _, _ = open_core("qwen35_tiny", (*SETS, *sets))
    mixed = arriving(core, given)
    assert core.stats()["by_walk"]["mixed"] > 0
    assert core.stats()["eager"] == 0
    apart, _, _ = open_core("qwen35_tiny", (*SETS, *sets, "engine.mixed=off"))
    alone = run_all(apart, given)
    assert {n: r.ids for n, r in mixed.items()} == {n: r.ids for n, r in alone.items()}


def test_256_rows_decode_in_one_captured_step(tmp_path):
    sets = (
        "engine.max_rows=256",
        "engine.max_context=64",
        "engine.token_budget=256",
        "engine.capture.rows=[256]",
        "engine.capture.tokens=[256]",
        "engine.in_flight=2",
        "nodes.ledger.resources.kv.page_tokens=8",
    )
    core, _ = open_ledger(tmp_path, (*SETS, *sets, "engine.mixed=off"), device="cuda")
    given = [ledger_request([i % 97, 3], i + 1, 30, id=f"r{i}") for i in range(256)]
    found = run_all(core, given)
    for i, request in enumerate(given):
        assert found[request.id].ids == continuation([i % 97, 3], i + 1, 30)
    stats = core.stats()
    assert "decode" not in stats["eager_by_walk"]
    assert stats["row_check"]["rows"] > 20 * 256
    assert stats["row_check"]["mismatches"] == 0
