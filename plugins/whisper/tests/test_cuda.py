"""Windows on a GPU: captured encoders, resident decodes, and alignments."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from mstar_whisper.aligning import first_positions, smoothed

from mstar_core.engine import Engine
from mstar_core.model.front import Request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.shared,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
TINY = ("whisper-tiny-en", "whisper-tiny-multilingual")
SETS = (
    "device=cuda",
    "engine.max_rows=32",
    "engine.token_budget=64",
    "engine.capture.rows=[1,8,32]",
    "engine.capture.tokens=[8,32]",
    "debug.row_check=true",
)


def opened(folder, scratch, dtype="fp32", *sets):
    file = scratch / "whisper.yaml"
    file.write_text(f"model: {{name: whisper, path: '{folder}', dtype: {dtype}}}\n")
    return Engine.open(file, [*SETS, *sets], offline=True)


def windows(folder, count):
    """``count`` times the golden window, and the ids that it gives."""
    want = json.loads((folder / "golden.json").read_text())["one_window_ts_False"]
    start = 4 if "multilingual" in folder.name else 2
    mel = torch.load(folder / "mel.pt", weights_only=True)["mel"].numpy()
    ids, settings = np.asarray(want[:start]), {"sampler_rules": {"timestamps": False}}
    arrays = {"mel": mel, "ids": ids}
    new = len(want) - start
    return [
        Request(arrays=arrays, max_new_tokens=new, settings=settings) for _ in range(count)
    ], want[start:]


@pytest.mark.parametrize("name", TINY)
def test_captured_windows_give_the_golden_tokens_at_any_concurrency(golden, tmp_path, name):
    """WH-16: 1, 7 and 32 at once; of the steps only ``cross`` runs eagerly."""
    with opened(golden / name, tmp_path) as engine:
        for count in (1, 7, 32):
            requests, want = windows(golden / name, count)
            assert [result.ids for result in engine.run(requests)] == [want] * count
        stats = engine.stats()
    assert set(stats["eager_by_walk"]) <= {"cross"}
    assert stats["row_check"]["mismatches"] == 0
    assert stats["row_check"]["rows"] > 300


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_hears_finite_numbers(golden, tmp_path, dtype):
    with opened(golden / TINY[1], tmp_path, dtype) as engine:
        requests, want = windows(golden / TINY[1], 9)
        results = engine.run(requests)
    assert [len(result.ids) for result in results] == [len(want)] * 9
    assert all(np.isfinite(result.logprobs).all() for result in results)


def test_alignments_are_found_as_on_the_cpu():
    draw = torch.Generator().manual_seed(0)
    weights_nMS = torch.rand(6, 40, 1500, generator=draw) ** 8
    tokens, positions = torch.tensor([40, 31]), torch.tensor([1500, 700])
    found = []
    for device in ("cpu", "cuda"):
        on = [x.to(device) for x in (weights_nMS, tokens, positions)]
        smooth = [smoothed(on[0], on[1][row], on[2][row], 7).mean(0) for row in (0, 1)]
        cost_BMS = -torch.stack(smooth).double()
        found.append((cost_BMS.cpu(), first_positions(cost_BMS, on[1], on[2]).cpu()))
    (cost, first), (cost_there, first_there) = found
    assert (cost - cost_there).abs().max() < 1e-4
    assert (first == first_there).float().mean() > 0.95
    assert (first[1] >= 0).sum() == 31
