"""The official client on a tiny Qwen3-TTS: sound that a codec makes while a talker goes on."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import openai
import pytest
import soundfile

from mstar_core.engine import Engine
from mstar_core.serving.media.encode import encoder
from mstar_core.testing.sound import encoded

from .conftest import start

pytestmark = pytest.mark.shared
GOLDEN = Path(__file__).parents[4] / "shared" / "models" / "golden"
FRAME, RATE = 1920, 24_000
SAMPLED = {
    "do_sample": True,
    "temperature": 0.9,
    "top_k": 50,
    "repetition_penalty": 1.05,
    "max_new_tokens": 40,
}
NAMED = {300: "\n", 301: "assistant", 302: "<|im_start|>", 303: "<|im_end|>"}
SAID = {"model": "tts", "voice": "serena", "input": "w1 w2 w3", "response_format": "pcm"}
PARTS = ("w1 w2 w3", "w4 w5 w6", "w7 w8 w9")
SEED = {"seed": 3, "language": "english"}


def words_tokenizer(folder):
    """A tokenizer of made-up words for a checkpoint without one."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel

    vocab = {NAMED.get(i, f"w{i}"): i for i in range(320)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="w0"))
    tokenizer.add_special_tokens(list(NAMED.values()))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


def tiny(kind, folder):
    """A configuration of a golden tiny checkpoint, which samples and says made-up words."""
    golden = GOLDEN / f"qwen3_tts-tiny-0b6-{kind}"
    if not golden.is_dir():
        pytest.skip(f"the reference folder {golden} is not there")
    checkpoint = folder / "checkpoint"
    shutil.copytree(golden, checkpoint)
    (checkpoint / "generation_config.json").write_text(json.dumps(SAMPLED))
    words_tokenizer(checkpoint)
    made = folder / "tts.yaml"
    made.write_text(
        f"model: {{name: qwen3-tts, path: '{checkpoint}', dtype: fp32, "
        "options: {part_chars: 16}}\n"
        "engine: {max_rows: 8, token_budget: 64, graphs: off}\n"
        "server: {model_name: tts}\n"
    )
    return made


def started(folder, config):
    """A ready server, which is gone behind the tests whatever becomes of them."""
    made = start(folder, config=str(config))
    try:
        yield made.ready(180)
    finally:
        made.stop()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return tiny("custom_voice", tmp_path_factory.mktemp("tts"))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A server of the model that imitates."""
    folder = tmp_path_factory.mktemp("base")
    yield from started(folder, tiny("base", folder))


@pytest.fixture(scope="module")
def tts(config):
    yield from started(config.parent, config)


@pytest.fixture(scope="module")
def inside(config):
    """``inside(text, **options)``: the sound float32 ``[T]`` of an engine in this process.

    What is asked twice is made once.
    """
    with Engine.open(str(config)) as engine:

        @cache
        def run(text, *, seed, **options):
            from attrs import evolve

            request = engine.front.speech_request(text, **options)
            request = evolve(request, sampling=evolve(request.sampling, seed=seed))
            (result,) = engine.run([request])
            sound = result.items["sound"].ravel()
            sound.flags.writeable = False
            return sound

        yield run


@pytest.fixture
def client(tts):
    with openai.OpenAI(base_url=f"{tts.address}/v1", api_key="none", max_retries=0) as made:
        yield made


def written(style, samples_T):
    made = encoder(style, RATE)
    return made.push(samples_T) + made.finish()


def pcm(data):
    return np.frombuffer(data, "<i2").astype(np.float32) / 32767


def test_the_server_is_warmed_by_speech(tts):
    assert "warm speech" in tts.log
    assert "no warm-up" not in tts.log


@pytest.mark.parametrize("style", ["pcm", "wav", "flac"])
def test_seeded_bytes_are_those_of_the_engine_in_this_process(client, inside, style):
    said = client.audio.speech.create(**SAID | {"response_format": style}, extra_body=SEED)
    sound = inside("w1 w2 w3", voice="serena", **SEED)
    assert len(sound) > 4 * FRAME
    assert said.content == written(style, sound)


@pytest.mark.parametrize("style", ["mp3", "opus"])
def test_compressed_speech_is_as_long(client, inside, style):
    said = client.audio.speech.create(**SAID | {"response_format": style}, extra_body=SEED)
    got, rate = soundfile.read(io.BytesIO(said.content))
    want = inside("w1 w2 w3", voice="serena", **SEED)
    assert len(got) / rate == pytest.approx(len(want) / RATE, abs=0.1)


def test_speech_streams_while_it_is_made(tts, client, inside):
    tts.mark()
    made = client.audio.speech.with_streaming_response
    with made.create(**SAID, extra_body=SEED) as said:
        assert said.headers["content-type"] == f"audio/pcm;rate={RATE};channels=1"
        data = b"".join(said.iter_bytes())
    assert data == written("pcm", inside("w1 w2 w3", voice="serena", **SEED))

    def is_told():
        """the line is written"""
        return [line for line in tts.news.splitlines() if "/v1/audio/speech" in line]

    (line,) = tts.until(is_told)
    told = dict(re.findall(r"(\w+)=([\d.]+)", line))
    assert 0 < float(told["ttfa_ms"]) < 0.7 * float(told["total_ms"])
    assert float(told["audio_out_s"]) == pytest.approx(len(data) / 2 / RATE, abs=1e-3)
    assert tts.metric("mstar_time_to_first_audio_seconds_count") >= 1
    assert tts.metric("mstar_audio_generated_seconds_total") > 0


def test_events_join_to_the_same_bytes(client, inside):
    made = client.audio.speech.with_streaming_response
    body = SAID | {"stream_format": "sse"}
    with made.create(**body, extra_body=SEED) as said:
        lines = [line for line in said.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    events = [json.loads(line[6:]) for line in lines]
    data = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert data == written("pcm", inside("w1 w2 w3", voice="serena", **SEED))
    assert len(events) > 2
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["output_tokens"] >= len(data) // 2 // FRAME


def test_voices_at_once_are_each_as_they_are_alone(tts, inside):
    """A sync client waits for each; the async one has them all open."""
    wishes = [{"voice": ("serena", "dylan")[i % 2], "seed": i} for i in range(6)]

    async def main():
        base = f"{tts.address}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:

            async def one(wish):
                extra = {"seed": wish["seed"], "language": "english"}
                made = client.audio.speech.with_streaming_response
                async with made.create(**SAID | {"voice": wish["voice"]}, extra_body=extra) as said:
                    return b"".join([piece async for piece in said.iter_bytes()])

            return await asyncio.gather(*map(one, wishes))

    sounds = asyncio.run(main())
    for wish, data in zip(wishes, sounds, strict=True):
        want = inside("w1 w2 w3", language="english", **wish)
        assert len(pcm(data)) == len(want)
        assert np.abs(pcm(data) - want.clip(-1, 1)).max() < 1e-4
    assert len({bytes(data) for data in sounds}) == len(sounds)


def test_long_text_is_one_sound_of_all_its_parts(client, inside):
    """Samples are those of the parts together, and no step is louder than what is around it."""
    said = client.audio.speech.create(**SAID | {"input": "\n\n".join(PARTS)}, extra_body=SEED)
    parts = [inside(part, voice="serena", **SEED) for part in PARTS]
    sound = pcm(said.content)
    assert len(sound) == sum(map(len, parts))
    steps = np.abs(np.diff(sound))
    joints = np.cumsum([len(part) for part in parts])[:-1]
    for joint in joints:
        around = np.concatenate([steps[joint - 240 : joint - 1], steps[joint : joint + 240]])
        assert steps[joint - 1] <= 3 * around.max()
    near = np.abs(np.arange(len(sound))[:, None] - joints).min(1) <= 120
    whole = np.concatenate(parts).clip(-1, 1)
    assert np.abs(sound - whole)[~near].max() < 1e-4


def test_a_sample_rate_is_asked_for(client, inside):
    said = client.audio.speech.create(
        **SAID | {"response_format": "wav"}, extra_body=SEED | {"sample_rate": 16_000}
    )
    samples, rate = soundfile.read(io.BytesIO(said.content))
    assert rate == 16_000
    assert len(samples) == -(-len(inside("w1 w2 w3", voice="serena", **SEED)) * 2 // 3)


def test_who_leaves_in_the_middle_leaves_nothing_behind(tts):
    connection = tts.connect()
    body = SAID | {"input": "\n\n".join(PARTS * 40)}
    connection.request(
        "POST", "/v1/audio/speech", json.dumps(body), {"content-type": "application/json"}
    )
    answer = connection.getresponse()
    assert len(answer.read(2 * FRAME)) == 2 * FRAME
    answer.close()
    connection.close()

    def is_over():
        """nothing is open, in the server or the engine"""
        names = "mstar_requests_open", "mstar_requests_running", "mstar_requests_waiting"
        return all(tts.metric(name) == 0 for name in names)

    tts.until(is_over, 10)
    assert tts.post("/v1/audio/speech", SAID | SEED).status == 200


def test_voices_and_languages_are_listed(tts, client):
    told = tts.get("/v1/audio/voices").json
    assert told["voices"] == ["dylan", "serena"]
    assert told["languages"] == ["auto", "beijing_dialect", "chinese", "english"]
    assert (told["default_voice"], told["sample_rate"]) == (None, RATE)
    traits = client.models.retrieve("tts").model_extra["traits"]
    assert traits["voices"] == told["voices"]


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"voice": "alloy"}, "invalid_value", "voice"),
        ({"voice": "/etc/passwd"}, "invalid_value", "voice"),
        ({"input": " \n "}, "invalid_value", "input"),
        ({"input": "w1 <|im_end|> w2"}, "invalid_value", "input"),
        ({"input": "w1 " * 4000}, "limit_exceeded", "input"),
        ({"speed": 2}, "invalid_value", "speed"),
        ({"instructions": "softly"}, "invalid_value", "instructions"),
        ({"extra_body": {"language": "elvish"}}, "invalid_value", "language"),
        ({"extra_body": {"sample_rate": 99}}, "invalid_value", "sample_rate"),
        ({"response_format": "aac"}, "unsupported_field", "response_format"),
    ],
    ids=str,
)
def test_what_cannot_be_spoken_is_refused_with_its_field(client, change, code, param):
    """TT-09, TT-11."""
    with pytest.raises(openai.BadRequestError) as error:
        client.audio.speech.create(**SAID | change)
    assert (error.value.code, error.value.param) == (code, param)


# a voice that is imitated ------------------------------------------------------------------------

VOICE = np.random.default_rng(0).integers(-9_000, 9_000, 36_000) / 32_768
CLONE = {"input": "w1 w2 w3", "response_format": "pcm", "seed": 3, "language": "english"}


def in_base64(samples_T, rate=24_000, style="WAV"):
    return base64.b64encode(encoded(samples_T, rate, style)).decode()


def test_a_recording_is_imitated_and_another_is_another_voice(base):
    """TT-11: whatever its format; the same recording and seed are the same bytes."""
    at_T = np.arange(36_000) / 24_000
    other = in_base64(0.5 * np.sin(2 * np.pi * (100 + 2_000 * at_T) * at_T))
    same = in_base64(VOICE), "data:audio/flac;base64," + in_base64(VOICE, style="FLAC")
    sounds = []
    for fields in (
        {"reference": same[0], "reference_text": "w5 w6"},
        {"reference": same[1], "reference_text": "w5 w6"},
        {"reference": same[0], "speaker_only": True},
        {"reference": other, "speaker_only": True},
    ):
        told = base.post("/v1/audio/speech", CLONE | fields)
        assert told.status == 200, told.body
        assert len(told.body) >= 2 * FRAME
        sounds.append(told.body)
    assert sounds[0] == sounds[1]
    assert len(set(sounds)) == 3
    assert "no warm-up" not in base.log


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "reference"),
        ({"reference": in_base64(VOICE)}, "reference_text"),
        ({"reference": in_base64(VOICE), "reference_text": " "}, "reference_text"),
        ({"reference": in_base64(VOICE[:4_800]), "reference_text": "w1"}, "reference"),
        ({"reference": in_base64(np.zeros(48_000)), "reference_text": "w1"}, "reference"),
        (
            {"reference": in_base64(np.resize(VOICE, 60 * 24_000)), "speaker_only": True},
            "reference",
        ),
        ({"reference": in_base64(VOICE), "speaker_only": True, "voice": "serena"}, "voice"),
    ],
    ids=range(7),
)
def test_a_recording_of_which_no_voice_can_be_made_is_refused(base, fields, param):
    """TT-10: none, without its text, too short, silent, too long, and beside a named voice."""
    told = base.post("/v1/audio/speech", CLONE | fields)
    assert (told.status, told.json["error"]["code"]) == (400, "invalid_value")
    assert told.json["error"]["param"] == param


def test_a_model_of_named_voices_imitates_nobody(tts):
    """TT-11."""
    told = tts.post("/v1/audio/speech", SAID | {"reference": in_base64(VOICE)})
    assert (told.status, told.json["error"]["code"]) == (400, "unsupported_field")
    assert told.json["error"]["param"] == "reference"
