"""The talker, the codec and the encoders on a GPU, by the kernels that they would serve with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mstar_qwen3_tts.heard import HeardVoice
from mstar_qwen3_tts.plugin import provide_backends
from mstar_qwen3_tts.recording import Recording

from mstar_core.config.sampling import SamplingSettings
from mstar_core.testing.cores import open_wired, results

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.shared,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
MODEL = "mstar_qwen3_tts.model:Qwen3TTS"
SETS = (
    "model.dtype=fp32",
    "engine.max_rows=4",
    "engine.token_budget=64",
    "engine.capture.rows=[1,4]",
    "engine.capture.tokens=[64]",
    "model.options.captured_frames=[1,4,16]",
    "engine.capture.require=true",
    "engine.in_flight=2",
    "debug.row_check=true",
)
PENALTY = SamplingSettings(repetition_penalty=1.05)


def opened(folder, sets, device, checkpoint):
    return open_wired(
        MODEL, folder, sets, device=device, checkpoint=checkpoint, backends=provide_backends
    )


def played(core, requests):
    for request in requests:
        core.submit(request)
    while core.turn():
        pass
    core.check_conserved()
    core.check_rows()
    own = results(core)
    return [own[r.id] for r in requests]


def test_codes_and_sound_are_the_published_ones(tiny, tmp_path):
    """Captured and resident, four at once."""
    core, wired, report = opened(tmp_path, SETS, "cuda", tiny.folder)
    front, told = wired.model.front(), tiny.told
    heard = None
    if front.config.imitates:
        vector, codes = np.array(told["x_vector"], np.float32), np.array(told["ref_codes"])
        heard = HeardVoice(speaker=vector, codes=codes, ids=told["ref_ids"])
    given = [
        front.ids_request(
            told["ids"],
            voice="serena" if front.config.speakers else None,
            language="english",
            instruct=told.get("instruct", ()),
            heard=heard,
            whole_text=True,
            sampling=PENALTY,
            max_new_tokens=14,
        )
        for _ in range(4)
    ]
    want = tiny.codes()[:, 0].tolist()
    for answer in played(core, given):
        assert answer.ids[: len(want)] == want
        if not front.config.imitates:
            assert np.abs(answer.items["sound"].ravel() - tiny.wave.numpy()).max() < 1e-4
    assert report.nodes[0].resident_walks == ("talker_decode",)
    assert core.stats()["row_check"]["steps"] > 0


WAYS = {
    "eager": ("engine.graphs=off",),
    "host": ("engine.resident=off", "engine.capture.require=true"),
    "resident": ("debug.row_check=true", "engine.capture.require=true"),
}


def test_a_seeded_request_alone_is_the_same_to_the_last_bit_in_every_way(tiny, tmp_path):
    """In bf16, over two tiles of keys: a captured step has room for more, an eager one has not.

    Prompt and chunks fill captured steps: padded, they may be multiplied in another order.
    """
    answers, told, prompt = {}, tiny.told, 64
    for name, way in WAYS.items():
        sets = ("model.dtype=bf16", "engine.max_rows=1", "engine.max_context=512", *way)
        sizes = f"engine.capture.tokens=[{prompt}]", "model.options.captured_frames=[1,2,4,8,16,32]"
        one = ("engine.capture.rows=[1]", *sizes)
        core, wired, report = opened(tmp_path / name, (*sets, *one), "cuda", tiny.folder)
        front, heard = wired.model.front(), None
        if front.config.imitates:
            vector, codes = np.array(told["x_vector"], np.float32), np.array(told["ref_codes"])
            heard = HeardVoice(speaker=vector, codes=codes, ids=told["ref_ids"])
        request = front.ids_request(
            told["ids"],
            voice="serena" if front.config.speakers else None,
            instruct=told.get("instruct", ()),
            heard=heard,
            whole_text=True,
            sampling=SamplingSettings(temperature=0.9, top_k=50, seed=11, logprobs=0),
            ignore_stop_ids=True,
            max_new_tokens=64,
        )
        (answers[name],) = played(core, [request])
        prompt = len(request.arrays["text"])
        resident = report.nodes[0].resident_walks
        assert resident == (("talker_decode",) if name == "resident" else ())
        assert (core.stats()["replayed"] > 63) == (name != "eager")
    for answer in answers.values():
        assert answer.ids == answers["eager"].ids
        assert answer.logprobs == answers["eager"].logprobs
        assert answer.items["sound"].tobytes() == answers["eager"].items["sound"].tobytes()


def test_a_recording_is_heard_as_on_a_cpu(base, tmp_path):
    time_T = np.arange(40_000) / 24_000
    sound_T = (0.4 * np.sin(700 * time_T * (1 + time_T)) ** 3).astype(np.float32)
    answers = {}
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        sets = ("model.dtype=fp32", "engine.graphs=off", "engine.max_rows=2")
        core, wired, _ = opened(folder, sets, device, base.folder)
        heard = Recording.of(sound_T, 24_000, ids=base.told["ref_ids"])
        request = wired.model.front().ids_request(
            base.told["ids"], heard=heard, sampling=PENALTY, max_new_tokens=9
        )
        (answers[device],) = played(core, [request])
    assert answers["cuda"].ids == answers["cpu"].ids
    difference = answers["cuda"].items["sound"] - answers["cpu"].items["sound"]
    assert np.abs(difference).max() < 1e-4
