"""Tiny checkpoints through the engine: golden tokens, alone and together, captured and late."""

from __future__ import annotations

import json
import random

import attrs
import numpy as np
import pytest
import torch

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.model.front import Request

TINY = ("whisper-tiny-en", "whisper-tiny-multilingual")
RECORDED = "engine.graphs=recorder"
SMALL = ("engine.max_rows=8", "engine.token_budget=64")


def golden_request(golden, name, timestamps):
    """The request of a golden, and the tokens that must come of it."""
    want = json.loads((golden / name / "golden.json").read_text())[f"one_window_ts_{timestamps}"]
    length = (3 if name.endswith("multilingual") else 1) + (not timestamps)
    mel = torch.load(golden / name / "mel.pt", weights_only=True)["mel"].numpy()
    request = Request(
        arrays={"mel": mel, "ids": np.asarray(want[:length])},
        max_new_tokens=len(want) - length,
        stop_ids=frozenset({300}),
        settings={"sampler_rules": {"timestamps": timestamps}},
    )
    return request, want[length:]


def sounds(count):
    """Tones of different pitch and length, in samples at 16 kHz."""
    draw = np.random.default_rng(7)
    for i in range(count):
        time = np.arange(int(16000 * draw.uniform(0.05, 1.0))) / 16000
        yield (0.4 * np.sin(2 * np.pi * (150 + 90 * i) * time)).astype(np.float32)


def mixed_requests(front, count=16):
    """Requests of all kinds that the tiny multilingual checkpoint takes."""
    kinds = [
        {"language": language, "task": task, "timestamps": timestamps, "max_new_tokens": new}
        for language in ("de", "zh")
        for task in ("transcribe", "translate")
        for timestamps, new in ((False, 9), (True, 30))
    ]
    return [
        front.audio_request(sound, 16000, **kinds[i % len(kinds)])
        for i, sound in enumerate(sounds(count))
    ]


@pytest.mark.shared
@pytest.mark.parametrize("graphs", ["engine.graphs=off", RECORDED])
@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("name", TINY)
def test_the_engine_gives_the_golden_tokens(served, golden, name, timestamps, graphs):
    engine = served(golden / name, graphs, *SMALL)
    request, want = golden_request(golden, name, timestamps)
    (result,) = engine.run([request])
    assert result.ids == want
    assert result.finish_reason == "length"
    assert all(np.isfinite(result.logprobs))


@pytest.mark.shared
@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
def test_steps_in_flight_on_a_late_device_change_no_token(served, golden, in_flight):
    device = CpuDevice(lag=Lag(seed=in_flight))
    sets = (f"engine.in_flight={in_flight}", RECORDED, *SMALL)
    engine = served(golden / TINY[0], *sets, device=device)
    pairs = [golden_request(golden, TINY[0], timestamps) for timestamps in (False, True) * 3]
    results = engine.run([request for request, _ in pairs])
    assert [r.ids for r in results] == [want for _, want in pairs]


@pytest.mark.shared
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_a_transcript_is_the_same_at_any_concurrency_and_order(served, golden, rows):
    """WH-16: the tokens of sixteen sounds, each alone, are those of all in a shuffled crowd."""
    engine = served(golden / TINY[1], f"engine.max_rows={rows}", "engine.token_budget=64")
    requests = mixed_requests(engine.front)
    alone = [engine.run([request])[0].ids for request in mixed_requests(engine.front)]
    order = random.Random(rows).sample(range(len(requests)), len(requests))
    together = engine.run([requests[i] for i in order])
    assert {i: r.ids for i, r in zip(order, together, strict=True)} == dict(enumerate(alone))
    assert len({tuple(ids) for ids in alone}) > 8


@pytest.mark.shared
def test_windows_wait_in_line_when_the_cross_pool_holds_only_some(served, golden):
    """WH-15: a window's pages are counted at admission; a pool for two serves eight in turn."""
    few = "nodes.decoder.resources.cross_kv.num_pages=2"
    engine = served(golden / TINY[1], few, *SMALL)
    requests = mixed_requests(engine.front, 8)
    results = engine.run(requests)
    assert [r.finish_reason for r in results].count("error") == 0
    want = served(golden / TINY[1], *SMALL).run(mixed_requests(engine.front, 8))
    assert [r.ids for r in results] == [r.ids for r in want]


@pytest.mark.shared
def test_a_long_prompt_and_many_wished_tokens_end_at_the_last_position(served, golden):
    """WH-10: 64 positions in the tiny checkpoint, 448 in the published sizes."""
    engine = served(golden / TINY[0], *SMALL)
    request, _ = golden_request(golden, TINY[0], False)
    ids = np.asarray([306, *range(3, 34), 301, 308])
    full = Request(
        arrays={"mel": request.arrays["mel"], "ids": ids},
        max_new_tokens=64 - len(ids),
        settings=request.settings,
    )
    (result,) = engine.run([full])
    assert len(result.ids) == 64 - len(ids)
    too_long = Request(arrays=full.arrays, max_new_tokens=65 - len(ids))
    (refused,) = engine.run([too_long])
    assert refused.finish_reason == "error"
    assert "64" in refused.error["want"]


@pytest.mark.shared
def test_a_request_with_another_windows_shape_is_refused_and_the_next_is_served(served, golden):
    """WH-07."""
    engine = served(golden / TINY[0], *SMALL)
    request, want = golden_request(golden, TINY[0], False)
    wrong = Request(arrays={"mel": np.zeros((1, 128, 100), "f4"), "ids": request.arrays["ids"]})
    refused, served_one = engine.run([wrong, request])
    assert refused.finish_reason == "error"
    assert "80" in refused.error["want"]
    assert served_one.ids == want


@pytest.mark.shared
def test_models_of_80_and_128_bands_are_asked_in_turn_and_each_hears_its_own(served, golden):
    """WH-07."""
    engines = [served(golden / name, *SMALL) for name in TINY]
    assert [engine.front.config.mel_bins for engine in engines] == [80, 128]
    for engine, name in [*zip(engines, TINY, strict=True)] * 2:
        request, want = golden_request(golden, name, True)
        (result,) = engine.run([request])
        assert result.ids == want
        heard = engine.front.audio_request(next(sounds(1)), 16000, language="en")
        assert heard.arrays["mel"].shape[1] == engine.front.config.mel_bins


@pytest.mark.shared
@pytest.mark.parametrize("name", TINY)
def test_a_suppressed_token_is_not_sampled_however_likely_it_is(served, golden, name):
    engine = served(golden / name, *SMALL)
    for token in engine.front.config.tokens.suppress:
        request, want = golden_request(golden, name, False)
        wished = attrs.evolve(request, sampling=SamplingSettings(logit_bias={token: 100.0}))
        (result,) = engine.run([wished])
        assert result.ids == want


@pytest.mark.shared
@pytest.mark.parametrize("name", TINY)
def test_neither_a_space_nor_the_end_comes_first(served, golden, name):
    engine = served(golden / name, *SMALL)
    assert engine.front.config.tokens.begin_suppress == (220, 300)
    for token in (220, 300):
        request, want = golden_request(golden, name, False)
        wished = attrs.evolve(request, sampling=SamplingSettings(logit_bias={token: 100.0}))
        (result,) = engine.run([wished])
        assert result.ids[0] == want[0]
        assert result.ids[1:] == ([220] * (len(want) - 1) if token == 220 else [])


@pytest.mark.shared
def test_with_captures_only_the_writing_of_windows_into_the_pool_runs_eagerly(served, golden):
    engine = served(golden / TINY[0], RECORDED, "engine.capture.tokens=[8,64]", *SMALL)
    engine.run([golden_request(golden, TINY[0], False)[0] for _ in range(5)])
    assert set(engine.stats()["eager_by_walk"]) == {"cross"}
