"""Tiny checkpoints through the engine: the reference's codes and waveform, alone and together."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from mstar_qwen3_tts.heard import HeardVoice
from mstar_qwen3_tts.model import Qwen3TTS
from mstar_qwen3_tts.options import Qwen3TTSOptions
from mstar_qwen3_tts.plugin import provide_backends
from safetensors.torch import load_file

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import FinishEvent, ItemsEvent, Result
from mstar_core.engine.device import Lag
from mstar_core.testing.cores import open_wired, run_all

MODEL = "mstar_qwen3_tts.model:Qwen3TTS"
FEW = "model.options.captured_frames=[1,4]"
SMALL = ("engine.max_rows=8", "engine.token_budget=64", "model.dtype=fp32", FEW)
EAGER, RECORDED = ("engine.graphs=off",), ("engine.graphs=recorder", "engine.capture.rows=[4]")
PENALTY = SamplingSettings(repetition_penalty=1.05)
FRAME = 1920
ways = pytest.mark.parametrize("way", [EAGER, RECORDED], ids=["eager", "recorded"])


def asked(front, told, whole_text=True, sampling=PENALTY, **options):
    """The request that the reference was given."""
    options = {"max_new_tokens": 14, "language": "english", **options}
    heard = None
    if front.config.imitates:
        heard = HeardVoice(
            speaker=np.array(told["x_vector"], np.float32),
            codes=np.array(told["ref_codes"]),
            ids=told["ref_ids"],
        )
    return front.ids_request(
        told["ids"],
        voice="serena" if front.config.speakers else None,
        instruct=told.get("instruct", ()),
        heard=heard,
        whole_text=whole_text,
        sampling=sampling,
        **options,
    )


def opened(tiny, tmp_path, *sets, lag=None):
    sets = (*SMALL, *sets)
    return open_wired(MODEL, tmp_path, sets, lag, checkpoint=tiny.folder, backends=provide_backends)


@pytest.mark.shared
@ways
@pytest.mark.parametrize("whole_text", [True, False])
def test_the_engine_gives_the_published_codes(tiny, tmp_path, whole_text, way):
    """Every code of every frame, and no frame for the last code sampled."""
    core, wired, _ = opened(tiny, tmp_path, *way)
    request = asked(wired.model.front(), tiny.told, whole_text)
    result = run_all(core, [request])[request.id]
    want = tiny.codes(whole_text)
    assert result.finish_reason == "length"
    assert result.ids[:-1] == want[:, 0].tolist()
    frames = wired.rings["frames"].read(torch.arange(1, 1 + len(want)))
    assert torch.equal(frames, want)
    stats = core.stats()
    eager = stats["eager_by_walk"].get("talker_decode", 0)
    assert stats["by_walk"]["talker_decode"] - eager == (0 if way is EAGER else 13)


def published_frames(equations, tiny, count):
    """The first frames by the reference's equations, of whole text."""
    told, folder = tiny.told, tiny.folder
    config = json.loads((folder / "config.json").read_text())
    talker = equations.Talker(load_file(folder / "model.safetensors"), config)
    given = {
        name: torch.tensor(told[name])
        for name in ("instruct", "ref_ids", "ref_codes")
        if name in told
    }
    if "x_vector" in told:
        given["x_vector"] = torch.tensor(told["x_vector"])
    speaker = "serena" if config["talker_config"].get("spk_id") else None
    ids = torch.tensor(told["ids"])
    prompt = talker.prompt(ids, "english", speaker=speaker, non_streaming=True, **given)
    return talker.run(*prompt, count + 1, penalty=1.05)


@pytest.mark.shared
def test_a_hundred_frames_and_their_sound_are_the_published_ones(tiny, equations, tmp_path):
    """Of every mode; an imitated voice goes on from its recording, and ends where it should."""
    told, folder = tiny.told, tiny.folder
    with torch.inference_mode():
        frames = published_frames(equations, tiny, 100)
    core, wired, _ = opened(tiny, tmp_path, *EAGER)
    request = asked(wired.model.front(), told, max_new_tokens=101)
    core.submit(request)
    while core.turn():
        pass
    result = Result.of(request.id, core.drain())
    assert result.ids[: len(frames)] == [first for first, *_ in frames]
    ended = (42, 42, "stop") if wired.model.config.imitates else (100, 101, "length")
    assert (len(frames), len(result.ids), result.finish_reason) == ended
    codec = load_file(folder / "speech_tokenizer" / "model.safetensors")
    config = json.loads((folder / "speech_tokenizer" / "config.json").read_text())
    before = told.get("ref_codes", [])
    with torch.inference_mode():
        wave = equations.codec_decode(codec, config, torch.tensor([*before, *frames]).T)
    sound = wave.numpy()[FRAME * len(before) :]
    assert np.abs(result.items["sound"].ravel() - sound).max() < 1e-5


@pytest.mark.shared
@pytest.mark.parametrize("in_flight", [0, 1, 3])
def test_the_sound_is_the_published_wave_and_comes_beside_the_codes(voice, tmp_path, in_flight):
    """TT-08: the first sound is there while the talker goes on."""
    core, wired, _ = opened(voice, tmp_path, *EAGER, f"engine.in_flight={in_flight}")
    core.submit(asked(wired.model.front(), voice.told))
    while core.turn():
        pass
    events = list(core.drain())
    sounds = [event.arrays["sound"] for event in events if isinstance(event, ItemsEvent)]
    sound = torch.from_numpy(np.concatenate(sounds))
    assert sound.shape == (13, FRAME)
    assert (sound.flatten() - voice.wave).abs().max() < 1e-4
    assert [len(sound) for sound in sounds] == [1, 2, 4, 6]
    kinds = [type(event) for event in events]
    assert kinds.index(ItemsEvent) < 8, "the codec waited for the talker"
    assert kinds[-1] is FinishEvent


@pytest.mark.shared
@ways
def test_eight_at_once_are_each_heard_while_they_are_spoken(voice, tmp_path, way):
    """TT-08: the first sound of each comes behind its first frame, long before its last."""
    sets = (*way, "engine.capture.rows=[8]") if way is RECORDED else way
    core, wired, _ = opened(voice, tmp_path, *sets)
    given = [asked(wired.model.front(), voice.told, max_new_tokens=30, id=f"{i}") for i in range(8)]
    for request in given:
        core.submit(request)
    while core.turn():
        pass
    codes, first = dict.fromkeys(map(str, range(8)), 0), {}
    for event in core.drain():
        if isinstance(event, ItemsEvent):
            first.setdefault(event.request, codes[event.request])
        elif not isinstance(event, FinishEvent):
            codes[event.request] += 1
    assert set(codes.values()) == {30}
    assert max(first.values()) < 6


@pytest.mark.shared
@pytest.mark.parametrize("in_flight", [0, 1, 3])
@pytest.mark.parametrize("frames", [1, 2, 7])
def test_no_frame_behind_the_end_is_heard(voice, codec_bench, tmp_path, frames, in_flight):
    """TT-02, TT-15: steps that were under way when the end was read tell nothing of theirs."""
    core, wired, _ = opened(voice, tmp_path, *EAGER, f"engine.in_flight={in_flight}")
    codes = voice.codes()
    end = frozenset({int(codes[frames, 0])})
    first = codes[:, 0].tolist().index(*end)
    request = asked(wired.model.front(), voice.told, stop_ids=end)
    core.submit(request)
    while core.turn():
        pass
    result = Result.of(request.id, core.drain())
    assert (result.finish_reason, len(result.ids)) == ("stop", first)
    want = codec_bench(voice.folder).decode(codes[:first], [first])
    assert result.items["sound"].shape == (first, FRAME)
    assert np.abs(result.items["sound"].ravel() - want.numpy()).max() < 1e-5


@pytest.mark.shared
@ways
def test_seeded_codes_are_the_same_alone_together_and_late(voice, tmp_path, way):
    core, wired, _ = opened(voice, tmp_path, *EAGER, "engine.in_flight=0")
    alone = {}
    for request in seeded(wired.model.front(), voice.told):
        alone[request.id] = run_all(core, [request])[request.id].ids
    assert len({tuple(ids) for ids in alone.values()}) == len(alone)
    core, wired, _ = opened(voice, tmp_path, *way, "engine.in_flight=2", lag=Lag(3))
    found = run_all(core, seeded(wired.model.front(), voice.told))
    assert {name: result.ids for name, result in found.items()} == alone


def seeded(front, told):
    """Sampled requests, each with a seed of its own."""
    return [
        asked(
            front,
            told,
            whole_text=bool(i % 2),
            sampling=SamplingSettings(temperature=0.9, top_k=50, repetition_penalty=1.05, seed=i),
            max_new_tokens=6 + i,
            id=f"s{i}",
        )
        for i in range(5)
    ]


@pytest.mark.shared
def test_a_talker_that_never_ends_stops_at_its_cap(voice, tmp_path):
    """TT-01: the cap follows from the text, and the request says why it ended."""
    core, wired, _ = opened(voice, tmp_path, *EAGER)
    front = wired.model.front()
    assert asked(front, voice.told, max_new_tokens=None).max_new_tokens == 125 + 25 * 7
    request = asked(front, voice.told, max_new_tokens=40, ignore_stop_ids=True)
    result = run_all(core, [request])[request.id]
    assert (result.finish_reason, len(result.ids)) == ("length", 40)


@pytest.mark.shared
@pytest.mark.parametrize("biased", [67, 1000, 70])
def test_neither_an_early_end_nor_a_special_code_is_sampled(voice, tmp_path, biased):
    """TT-02: 67 is the end, which is not among the first two codes; the others are never."""
    core, wired, _ = opened(voice, tmp_path, *EAGER)
    sampling = SamplingSettings(repetition_penalty=1.05, logit_bias={biased: 100.0})
    request = asked(wired.model.front(), voice.told, sampling=sampling)
    result = run_all(core, [request])[request.id]
    if biased == 67:
        assert (result.finish_reason, len(result.ids)) == ("stop", 2)
    else:
        assert (result.finish_reason, len(result.ids)) == ("length", 14)
        assert max(result.ids) < 64


@pytest.mark.shared
def test_a_penalty_of_the_requests_own_takes_the_place_of_the_checkpoints(voice, tmp_path):
    core, wired, _ = opened(voice, tmp_path, *EAGER)
    front = wired.model.front()
    answers = {}
    for penalty in (1.0, 1.05, 4.0):
        sampling = SamplingSettings(repetition_penalty=penalty)
        request = asked(front, voice.told, sampling=sampling, max_new_tokens=40)
        answers[penalty] = run_all(core, [request])[request.id].ids
    repeats = {p: len(ids) - len(set(ids)) for p, ids in answers.items()}
    assert repeats[1.0] >= repeats[1.05] > repeats[4.0]


@pytest.mark.shared
@pytest.mark.parametrize("turns", [4, 9, 14])
def test_a_talker_that_is_copied_out_in_the_middle_goes_on_as_it_would_have(voice, tmp_path, turns):
    """TT-07: codes and sound are those of a run that nobody interrupted."""
    core, wired, _ = opened(voice, tmp_path, *EAGER)
    request = asked(wired.model.front(), voice.told)
    core.submit(request)
    for _ in range(turns):
        core.turn()
    assert core.offload(request.id) is None
    for _ in range(3):
        core.turn()
    core.reload(request.id)
    while core.turn():
        pass
    result = Result.of(request.id, core.drain())
    assert result.ids[:-1] == voice.codes()[:, 0].tolist()
    assert core.stats()["offload"]["reloads"] == 1
    difference = torch.from_numpy(result.items["sound"]).flatten() - voice.wave
    assert difference.abs().max() < 1e-4


@pytest.mark.shared
@pytest.mark.parametrize("node", ["codec", "talker"])
def test_what_breaks_on_one_side_of_the_stream_ends_the_request_on_both(voice, tmp_path, node):
    """And no other request."""
    core, wired, _ = opened(voice, tmp_path, *EAGER)
    front = wired.model.front()
    broken, other = (asked(front, voice.told, id=name) for name in ("broken", "other"))
    for request in (broken, other):
        core.submit(request)
    while core.num_generated("broken") < 5:
        core.turn()
    resources = core.nodes[node].resources
    if node == "codec":
        state = resources["memory"]
        pieces = state.pieces(_handle(core, "broken"))
    else:
        pieces = resources["kv"].pieces(_handle(core, "broken"))
    for piece in pieces:
        piece.fill_(float("nan"))
    while core.turn():
        pass
    events = list(core.drain())
    result = Result.of("broken", [e for e in events if e.request == "broken"])
    assert result.finish_reason == "error"
    assert "finite" in result.error["want"]
    whole = Result.of("other", [e for e in events if e.request == "other"])
    assert whole.ids[:-1] == voice.codes()[:, 0].tolist()
    assert np.abs(whole.items["sound"].ravel() - voice.wave.numpy()).max() < 1e-4
    core.check_conserved()


def _handle(core, name):
    return next(state.handle for state in core._running if state.id == name)


@pytest.mark.shared
@pytest.mark.parametrize("short", [0, 1])
def test_a_talker_may_speak_to_the_end_of_its_context(voice, tmp_path, short):
    """TT-13: with pages that the context fills, and with one token less."""
    request = asked(read_front(voice), voice.told, ignore_stop_ids=True)
    prompt = len(request.arrays["text"])
    context = prompt + (-prompt % 8) + 24
    sets = (f"engine.max_context={context}", "nodes.talker.resources.kv.page_tokens=8")
    core, wired, _ = opened(voice, tmp_path, *EAGER, *sets)
    new = context - prompt - short
    long = asked(wired.model.front(), voice.told, ignore_stop_ids=True, max_new_tokens=new)
    result = run_all(core, [long])[long.id]
    assert (result.finish_reason, len(result.ids)) == ("length", new)


def read_front(tiny):
    return Qwen3TTS.open(tiny.folder, Qwen3TTSOptions()).front()


@pytest.mark.shared
@pytest.mark.parametrize("budget", [7, 64])
def test_an_imitated_voice_sounds_as_if_it_went_on_from_the_recording(
    base, codec_bench, tmp_path, budget
):
    """TT-05: every chunk has the recording before it, whose own sound is not told."""
    sets = (f"engine.token_budget={budget}", "engine.min_chunk=1")
    core, wired, _ = opened(base, tmp_path, *EAGER, *sets)
    request = asked(wired.model.front(), base.told)
    core.submit(request)
    while core.turn():
        pass
    result = Result.of(request.id, core.drain())
    reference = torch.tensor(base.told["ref_codes"])
    whole = torch.cat([reference, base.codes()])
    want = codec_bench(base.folder).decode(whole, [len(whole)])[FRAME * len(reference) :]
    assert result.items["sound"].shape == (13, FRAME)
    assert np.abs(result.items["sound"].ravel() - want.numpy()).max() < 1e-5


@pytest.mark.shared
def test_a_voice_of_a_vector_alone_is_another_and_begins_with_nothing(base, codec_bench, tmp_path):
    core, wired, _ = opened(base, tmp_path, *EAGER)
    front, vector = wired.model.front(), np.array(base.told["x_vector"], np.float32)
    answers = []
    for speaker in (vector, -vector):
        heard = HeardVoice(speaker=speaker)
        request = front.ids_request(
            base.told["ids"], heard=heard, language="english", sampling=PENALTY, max_new_tokens=9
        )
        core.submit(request)
        while core.turn():
            pass
        answers.append(Result.of(request.id, core.drain()))
    assert answers[0].ids != answers[1].ids
    frames = wired.rings["frames"].read(torch.arange(1, 9))
    assert frames[:, 0].tolist() == answers[1].ids[:8]
    want = codec_bench(base.folder).decode(frames, [8])
    assert np.abs(answers[1].items["sound"].ravel() - want.numpy()).max() < 1e-5


@pytest.mark.shared
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_begins_as_the_published_codes_do(base, tmp_path, dtype):
    core, wired, _ = opened(base, tmp_path, *EAGER, f"model.dtype={dtype}")
    request = asked(wired.model.front(), base.told, max_new_tokens=6)
    core.submit(request)
    while core.turn():
        pass
    result = Result.of(request.id, core.drain())
    assert result.ids[:5] == base.codes()[:5, 0].tolist()
    assert result.items["sound"].shape == (5, FRAME)
    assert np.isfinite(result.items["sound"]).all()
