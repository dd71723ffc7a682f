"""The whole engine under CUDA graphs: the ledger model, and a real checkpoint in fp32."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mstar_core.engine import Engine
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_ledger, run_all
from mstar_core.testing.ledger import continuation, ledger_request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]

ROOT = Path(__file__).parents[2]
PLACES = (ROOT.parent / "shared" / "models", ROOT / ".shared")
"""Where reference checkpoints are looked for; the second is a copy for a machine without them."""
LEDGER = (
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=128",
    "engine.capture.rows=[1,2,4,8]",
    "engine.capture.tokens=[16,64]",
    "engine.capture.require=true",
    "nodes.ledger.resources.kv.page_tokens=8",
)


@pytest.fixture
def slow():
    for place in PLACES:
        folder = place / "golden" / "qwen3_5-tiny-untied-8l-slow"
        if folder.is_dir():
            return folder
    pytest.fail(f"no reference checkpoint in {' or '.join(map(str, PLACES))}: nothing would be run")


@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
@pytest.mark.parametrize("graphs", ["off", "cuda"])
def test_every_token_of_the_ledger_is_exact(tmp_path, in_flight, graphs):
    sets = (*LEDGER, f"engine.in_flight={in_flight}", f"engine.graphs={graphs}")
    core, _ = open_ledger(tmp_path, sets, device="cuda")
    given = {
        f"r{i}": ledger_request([(7 * i + j) % 97 for j in range(5 + 3 * i)], i + 1, 40, id=f"r{i}")
        for i in range(11)
    }
    found = run_all(core, given.values())
    for i, (name, request) in enumerate(given.items()):
        assert found[name].ids == continuation(request.arrays["ids"].tolist(), i + 1, 40)
    if graphs == "cuda":
        assert core.stats()["eager"] == 0


@pytest.mark.parametrize("graphs", ["off", "cuda"])
def test_sixteen_slow_prompts_alone_and_together(slow, graphs):
    cases = json.loads((slow / "golden.json").read_text())["cases"]
    sets = (
        f"model.path={slow}",
        "model.dtype=fp32",
        "device=cuda",
        "engine.max_rows=8",
        "engine.token_budget=128",
        "engine.max_context=512",
        "engine.capture.rows=[1,8]",
        "engine.capture.tokens=[32,128]",
        "engine.capture.require=true",
        f"engine.graphs={graphs}",
        "engine.in_flight=2",
        "debug.row_check=true",
    )

    def request(case):
        ids = np.asarray(case["prompt"], np.int64)
        return Request(arrays={"ids": ids}, max_new_tokens=64, ignore_stop_ids=True)

    with Engine.open("qwen35_tiny", sets) as engine:
        together = engine.run([request(c) for c in cases])
        alone = [engine.run([request(c)])[0] for c in cases[::5]]
        stats = engine.stats()
    assert [r.ids for r in together] == [c["greedy"] for c in cases]
    assert [r.ids for r in alone] == [c["greedy"] for c in cases[::5]]
    if graphs == "cuda":
        assert stats["eager"] == 0
        assert stats["row_check"]["rows"] > 1000
        assert stats["row_check"]["mismatches"] == 0
