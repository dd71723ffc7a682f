"""Resident on, resident off, eager, alone: the same tokens, on a late device at every depth."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.opening import open_core
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_ledger, run_all
from mstar_core.testing.ledger import continuation, ledger_request

GOLDEN = Path(__file__).parents[3] / "shared" / "models" / "golden"
ON = ("engine.graphs=recorder", "engine.resident=auto")
OFF = ("engine.graphs=recorder", "engine.resident=off")
EAGER = ("engine.graphs=off",)
WAYS = pytest.mark.parametrize("way", [ON, OFF, EAGER], ids=["on", "off", "eager"])
DEPTHS = pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
LAGS = pytest.mark.parametrize("lag", [None, Lag(), Lag(seed=11)], ids=["none", "latest", "seeded"])
EACH_WAY = pytest.mark.parametrize(
    ("way", "in_flight", "lag"),
    [
        (ON, 0, Lag()),
        (ON, 1, Lag(seed=1)),
        (ON, 2, Lag()),
        (ON, 3, Lag(seed=3)),
        (OFF, 2, Lag(seed=2)),
        (EAGER, 1, None),
    ],
    ids=["on-0", "on-1", "on-2", "on-3", "off-2", "eager-1"],
)
"""Fewer than all products: for models that take longer."""


def counts(core, node):
    planner = core.nodes[node].planner
    return None if planner is None else planner.counts


def check_way(core, node, way):
    """The steps went the way that the test is about."""
    if way is ON:
        assert counts(core, node).steps > 0
        assert counts(core, node).untouched_steps > 0
    else:
        assert counts(core, node) is None
        assert (core.stats()["replayed"] > 0) == (way is OFF)


# The ledger

LEDGER = (
    "engine.max_rows=6",
    "engine.token_budget=32",
    "engine.min_chunk=4",
    "engine.max_context=128",
    "engine.capture.rows=[1,3]",
    "engine.capture.tokens=[16]",
    "nodes.ledger.resources.kv.page_tokens=8",
)


def ledger_requests():
    """Nine requests for six rows, of which a bucket holds three."""
    return {
        f"r{i}": ledger_request([(i * 29 + j) % 97 for j in range(3 + 5 * i)], i + 1, 11 + 3 * i)
        for i in range(9)
    }


def ledger_tokens(request):
    ids, salt = request.arrays["ids"].tolist(), int(request.arrays["salt"][0])
    return continuation(ids, salt, request.max_new_tokens)


@WAYS
@DEPTHS
@LAGS
def test_the_ledgers_tokens_are_the_same_on_off_and_eager(tmp_path, way, in_flight, lag):
    core, _ = open_ledger(tmp_path, (*LEDGER, *way, f"engine.in_flight={in_flight}"), lag)
    given = {n: attrs.evolve(r, id=n) for n, r in ledger_requests().items()}
    found = run_all(core, given.values())
    for name, request in given.items():
        assert found[name].ids == ledger_tokens(request), name
    check_way(core, "ledger", way)


@WAYS
def test_the_ledgers_tokens_are_the_same_alone(tmp_path, way):
    core, _ = open_ledger(tmp_path, (*LEDGER, *way, "engine.max_rows=3"))
    for request in ledger_requests().values():
        found = run_all(core, [request])
        assert found[request.id].ids == ledger_tokens(request)
    check_way(core, "ledger", way)


# Qwen3.5

QWEN = (
    "model.dtype=fp32",
    "device=cpu",
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=512",
    "engine.capture.rows=[1,8]",
    "engine.capture.require=true",
    "nodes.text.resources.kv.page_tokens=16",
)


@pytest.fixture(scope="module")
def slow():
    """The slow-state checkpoint, eight of its prompts and 48 greedy tokens of each."""
    pytest.importorskip("mstar_qwen35", reason="the qwen35 plugin is not installed")
    folder = GOLDEN / "qwen3_5-tiny-untied-8l-slow"
    if not folder.is_dir():
        pytest.skip("the shared reference folder is not beside the checkout")
    cases = json.loads((folder / "golden.json").read_text())["cases"][::2]
    return folder, [(case["prompt"], case["greedy"][:48]) for case in cases]


def qwen_core(folder, *sets, lag=None):
    given = (f"model.path={folder}", *QWEN, *sets)
    return open_core("qwen35_tiny", given, device=CpuDevice(lag), offline=True)[0]


def check_golden(core, requests, wanted):
    found = run_all(core, requests)
    assert [found[request.id].ids for request in requests] == wanted


def prompts(pairs):
    return [
        Request(arrays={"ids": np.asarray(p, np.int64)}, max_new_tokens=48, ignore_stop_ids=True)
        for p, _ in pairs
    ]


@pytest.mark.shared
@EACH_WAY
def test_the_golden_tokens_of_slow_states(slow, way, in_flight, lag):
    folder, pairs = slow
    core = qwen_core(folder, *way, f"engine.in_flight={in_flight}", lag=lag)
    check_golden(core, prompts(pairs), [greedy for _, greedy in pairs])
    check_way(core, "text", way)


@pytest.mark.shared
def test_the_golden_tokens_of_slow_states_alone(slow):
    folder, pairs = slow
    core = qwen_core(folder, *ON)
    for pair in pairs[::3]:
        check_golden(core, prompts([pair]), [pair[1]])
    assert counts(core, "text").untouched_steps > 0


def test_seeded_sampling_is_the_same_on_off_and_eager():
    """Greedy and sampled buckets are both resident; settings reach neither by the host's plan.

    In the last batch each step is planned on the host as long as a row with a penalty runs.
    """
    pytest.importorskip("mstar_qwen35", reason="the qwen35 plugin is not installed")
    found = {}
    for way in (ON, OFF, EAGER):
        sets = (*(s for s in QWEN if "max_context" not in s), "engine.capture.rows=[1,3]", *way)
        core = open_core("qwen35_tiny", sets, device=CpuDevice(Lag(seed=1)), offline=True)[0]
        requests = [
            Request(
                id=f"r{i}",
                arrays={"ids": np.arange(3 + i, dtype=np.int64)},
                max_new_tokens=14 + i,
                ignore_stop_ids=True,
                sampling=SamplingSettings(
                    temperature=0.0 if greedy else 0.7 + i / 10, top_k=5 + i, seed=i
                ),
            )
            for greedy in (True, False)
            for i in ((0, 1, 2) if greedy else (3, 4, 5))
        ]
        penalised = attrs.evolve(
            requests[0], id="p", sampling=SamplingSettings(frequency_penalty=1.5, seed=1)
        )
        results = {}
        for batch in (requests[:3], requests[3:], requests[2:4], [*requests[3:5], penalised]):
            given = [attrs.evolve(one, id=f"{one.id} of {len(results)}") for one in batch]
            results |= {name: one.ids for name, one in run_all(core, given).items()}
        found[way] = results
        check_way(core, "text", way)
        if way is ON:
            resident = core.lifecycle.buckets.captured.values()
            decodes = {c.bucket.variant: c.resident for c in resident if c.bucket.walk == "decode"}
            assert decodes == {0: True, 1: True}
    assert found[ON] == found[OFF] == found[EAGER]


# Whisper

WHISPER = ("model.dtype=fp32", "device=cpu", "engine.max_rows=8", "engine.token_budget=64")


@pytest.fixture(scope="module")
def windows():
    """The tiny English checkpoint, a window of its golden with and without timestamps."""
    pytest.importorskip("mstar_whisper", reason="the whisper plugin is not installed")
    torch = pytest.importorskip("torch")
    folder = GOLDEN / "whisper-tiny-en"
    if not folder.is_dir():
        pytest.skip("the shared reference folder is not beside the checkout")
    golden = json.loads((folder / "golden.json").read_text())
    mel = torch.load(folder / "mel.pt", weights_only=True)["mel"].numpy()
    found = []
    for timestamps in (False, True):
        want = golden[f"one_window_ts_{timestamps}"]
        length = 1 + (not timestamps)
        request = Request(
            arrays={"mel": mel, "ids": np.asarray(want[:length])},
            max_new_tokens=len(want) - length,
            stop_ids=frozenset({300}),
            settings={"sampler_rules": {"timestamps": timestamps}},
        )
        found.append((request, want[length:]))
    return folder, found


def whisper_core(folder, tmp_path, *sets, lag=None):
    file = tmp_path / "whisper.yaml"
    file.write_text(f"model: {{name: whisper, path: '{folder}'}}\n")
    return open_core(file, (*WHISPER, *sets), device=CpuDevice(lag), offline=True)[0]


@pytest.mark.shared
@EACH_WAY
def test_the_golden_tokens_of_windows_read_from_a_pool_that_decode_never_writes(
    windows, tmp_path, way, in_flight, lag
):
    """Two pools on one node: the self pool grows, the cross pool is read at span 0."""
    folder, pairs = windows
    core = whisper_core(folder, tmp_path, *way, f"engine.in_flight={in_flight}", lag=lag)
    given = [(attrs.evolve(r, id=f"{i}"), want) for i, (r, want) in enumerate(pairs * 5)]
    check_golden(core, [r for r, _ in given], [want for _, want in given])
    check_way(core, "decoder", way)


@pytest.mark.shared
def test_the_golden_tokens_of_a_window_alone(windows, tmp_path):
    folder, pairs = windows
    core = whisper_core(folder, tmp_path, *ON, "engine.max_rows=1")
    for request, want in pairs:
        check_golden(core, [request], [want])
    layout = core.nodes["decoder"].tables.layout
    assert {key for (key, _), _ in layout.spans} == {"kv", "cross_kv"}
    assert counts(core, "decoder").untouched_steps > 0
