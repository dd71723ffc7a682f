"""The official client on the routes of sound: every option, sync and async, streamed or not."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
import time
from pathlib import Path

import numpy as np
import openai
import pytest
import soundfile

from mstar_core.echo.tones import RATE, tones
from mstar_core.testing.sound import encoded, tone

from .conftest import start

pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
"""The client calls ``translations.create`` that."""
WAV = ("speech.wav", encoded(tone(1.5, 16_000), 16_000))
REAL = Path(__file__).parents[4] / ".cache" / "whisper-tiny.en"
SHARED = Path(__file__).parents[4] / "shared"
TINY_HEARS_S = 1.0


def client_of(server):
    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)


def async_client_of(server):
    return openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)


@pytest.fixture
def client(server):
    with client_of(server) as made:
        yield made


def words_tokenizer(folder):
    """A tokenizer of made-up words for a checkpoint without one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    vocab = {f"w{i}": i for i in range(300)}
    Tokenizer(WordLevel(vocab, unk_token="w0")).save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


def tiny_server(kind, folder, *arguments):
    """A server of a golden tiny Whisper, which says made-up words."""
    golden = SHARED / "models" / "golden" / kind
    if not golden.is_dir():
        pytest.skip(f"the reference folder {golden} is not there")
    checkpoint = folder / "checkpoint"
    shutil.copytree(golden, checkpoint)
    words_tokenizer(checkpoint)
    config = folder / "tiny.yaml"
    config.write_text(f"model: {{name: whisper, path: '{checkpoint}', dtype: fp32}}\n")
    return start(folder, *arguments, config=str(config)).ready()


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    made = tiny_server("whisper-tiny-en", tmp_path_factory.mktemp("english"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    made = tiny_server("whisper-tiny-multilingual", tmp_path_factory.mktemp("multilingual"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    if not (REAL / "model.safetensors").is_file():
        pytest.skip(f"the published whisper-tiny.en is not in {REAL}: download it there")
    folder = tmp_path_factory.mktemp("real")
    config = folder / "whisper.yaml"
    config.write_text(f"model: {{name: whisper, path: '{REAL}', dtype: fp32}}\n")
    made = start(folder, config=str(config)).ready(300)
    yield made
    made.stop()


# speech ------------------------------------------------------------------------------------------


def pcm(data):
    return np.frombuffer(data, "<i2").astype(np.float32) / 32767


@pytest.mark.parametrize("style", ["pcm", "wav", "flac", "mp3", "opus"])
def test_speech_is_written_in_every_format(client, style):
    said = client.audio.speech.create(
        model="echo", voice="tone", input="hallo wörld", response_format=style
    )
    want = tones("hallo wörld".encode())
    assert said.response.headers["content-type"].startswith("audio/")
    if style == "pcm":
        assert said.response.headers["content-type"] == f"audio/pcm;rate={RATE};channels=1"
        got, rate = pcm(said.content), RATE
    else:
        got, rate = soundfile.read(io.BytesIO(said.content), dtype="float32")
    if style in ("pcm", "wav", "flac"):
        assert rate == RATE
        assert np.abs(got - want).max() < 1e-4
    else:
        assert len(got) / rate == pytest.approx(len(want) / RATE, abs=0.1)
        assert 0.15 < np.abs(got).max() < 0.5


def test_speech_is_mp3_unless_the_request_says_otherwise_and_has_a_voice_of_its_own(client):
    said = client.audio.speech.create(model="echo", voice="tone", input="x" * 50)
    assert said.response.headers["content-type"] == "audio/mpeg"
    assert soundfile.info(io.BytesIO(said.content)).format == "MP3"


def test_speech_streams_its_bytes(client):
    made = client.audio.speech.with_streaming_response
    with made.create(model="echo", voice="tone", input="abc" * 300, response_format="pcm") as said:
        pieces = list(said.iter_bytes(chunk_size=4096))
    assert np.abs(pcm(b"".join(pieces)) - tones(b"abc" * 300)).max() < 1e-4


def test_long_speech_is_longer_than_what_may_wait_and_comes_whole(client):
    """10,000 characters are 4.8 MB: more than `max_unread_bytes`."""
    text = "0123456789" * 1000
    said = client.audio.speech.create(model="echo", voice="tone", input=text, response_format="pcm")
    assert len(said.content) == 10_000 * 240 * 2


def test_speech_as_events_joins_to_the_same_sound(server):
    body = {"input": "abc" * 100, "stream_format": "sse", "response_format": "pcm"}
    answer = server.post("/v1/audio/speech", body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = [line[6:] for line in answer.body.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line) for line in lines]
    done = events.pop()
    assert done["type"] == "speech.audio.done"
    assert done["usage"] == {"input_tokens": 300, "output_tokens": 300, "total_tokens": 600}
    assert {event["type"] for event in events} == {"speech.audio.delta"}
    data = b"".join(base64.b64decode(event["audio"]) for event in events)
    assert np.abs(pcm(data) - tones(b"abc" * 100)).max() < 1e-4


def test_speed_shortens_and_lengthens_speech(client):
    sizes = [
        len(
            client.audio.speech.create(
                model="echo", voice="tone", input="x" * 100, response_format="pcm", speed=speed
            ).content
        )
        for speed in (0.5, 1, 2)
    ]
    assert sizes == [200 * 480, 100 * 480, 50 * 480]


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"input": ""}, "invalid_value", "input"),
        ({"input": "x" * 10_001}, "limit_exceeded", "input"),
        ({"voice": "alloy"}, "invalid_value", "voice"),
        ({"speed": 5}, "invalid_value", "speed"),
        ({"response_format": "aac"}, "unsupported_field", "response_format"),
        ({"instructions": "whisper"}, "unsupported_field", "instructions"),
        ({"model": "tts-1"}, "model_not_found", "model"),
    ],
)
def test_speech_that_cannot_be_made_is_refused_with_its_field(client, change, code, param):
    wishes = {"model": "echo", "voice": "tone", "input": "x", **change}
    with pytest.raises(openai.APIStatusError) as error:
        client.audio.speech.create(**wishes)
    assert (error.value.code, error.value.param) == (code, param)
    assert error.value.status_code in (400, 404)


def test_async_speech(server):
    async def main():
        async with async_client_of(server) as client:
            said = await client.audio.speech.create(
                model="echo", voice="tone", input="abc", response_format="pcm"
            )
            return said.content

    assert len(asyncio.run(main())) == 3 * 480


def test_a_model_that_does_not_speak_offers_no_speech(english):
    with client_of(english) as client, pytest.raises(openai.NotFoundError) as error:
        client.audio.speech.create(model="tiny", voice="x", input="x")
    assert error.value.code == "route_not_offered"


# hearing -----------------------------------------------------------------------------------------


def test_a_transcription_has_text_and_usage(client):
    heard = client.audio.transcriptions.create(model="echo", file=WAV)
    assert heard.text == "1.50 s of sound"
    assert heard.usage.type == "duration"
    assert heard.usage.seconds == 1.5


def test_every_format_of_a_transcription(client):
    def ask(style):
        return client.audio.transcriptions.create(
            model="echo", file=WAV, prompt="Hallo du", response_format=style
        )

    assert ask("text") == "Hallo du\n"
    assert ask("srt") == "1\n00:00:00,000 --> 00:00:01,500\nHallo du\n\n"
    assert ask("vtt") == "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHallo du\n\n"
    verbose = ask("verbose_json")
    assert verbose.duration == 1.5
    assert verbose.text == "Hallo du"
    (segment,) = verbose.segments
    assert (segment.start, segment.end, segment.text) == (0, 1.5, "Hallo du")
    assert segment.tokens == list(b"Hallo du")
    assert segment.avg_logprob <= 0


def test_a_transcription_streams_its_text(client):
    stream = client.audio.transcriptions.create(
        model="echo", file=WAV, prompt="größer als 😀 und mehr", stream=True
    )
    events = list(stream)
    done = events.pop()
    assert done.type == "transcript.text.done"
    assert done.text == "größer als 😀 und mehr"
    assert {event.type for event in events} == {"transcript.text.delta"}
    assert "".join(event.delta for event in events) == done.text
    assert "�" not in done.text


def test_async_transcriptions_streamed_and_not(server):
    async def main():
        async with async_client_of(server) as client:
            whole = await client.audio.transcriptions.create(model="echo", file=WAV)
            stream = await client.audio.transcriptions.create(
                model="echo", file=WAV, prompt="abc", stream=True
            )
            events = [event async for event in stream]
            translated = await client.audio.translations.create(model="echo", file=WAV)
            return whole.text, events[-1].text, translated.text

    assert asyncio.run(main()) == ("1.50 s of sound", "abc", "1.50 s of sound")


def test_fields_with_brackets_and_without_are_the_same(server, client):
    client.audio.transcriptions.create(
        model="echo",
        file=WAV,
        response_format="verbose_json",
        timestamp_granularities=["segment"],
    )


LONG = ("long.wav", encoded(np.zeros(95 * 8_000, np.float32), 8_000))


def test_sound_of_several_windows_has_the_same_words_in_every_format(client):
    """WH-02, WH-04, WH-12."""

    def ask(style, **wishes):
        asked = {"model": "echo", "file": LONG, "response_format": style, **wishes}
        return client.audio.transcriptions.create(**asked)

    said = "30.00 s of sound 30.00 s of sound 30.00 s of sound 5.00 s of sound"
    verbose = ask("verbose_json", timestamp_granularities=["segment", "word"])
    assert verbose.text == ask("json").text == ask("text").rstrip() == said
    times = [(segment.start, segment.end) for segment in verbose.segments]
    assert times == [(0, 30), (30, 60), (60, 90), (90, 95)]
    assert ask("srt").count("s of sound") == ask("vtt").count("s of sound") == 4
    words = verbose.words
    assert " ".join(word.word for word in words) == said
    assert words[-1].end == verbose.duration == 95


def test_segments_are_streamed_as_they_are_final(client):
    stream = client.audio.transcriptions.create(model="echo", file=LONG, stream=True)
    *deltas, done = list(stream)
    assert [event.delta for event in deltas[:2]] == ["30.00 s of sound", " 30.00 s of sound"]
    assert len(deltas) == 4
    assert "".join(event.delta for event in deltas) == done.text


def test_words_are_timed_only_where_the_format_has_them(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.audio.transcriptions.create(model="echo", file=WAV, timestamp_granularities=["word"])
    assert (error.value.code, error.value.param) == ("invalid_value", "timestamp_granularities")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"include": ["logprobs"]}, "unsupported_field"),
        ({"temperature": 3}, "invalid_value"),
        ({"response_format": "diarized_json"}, "invalid_value"),
        ({"response_format": "srt", "stream": True}, "unsupported_field"),
        ({"chunking_strategy": {"type": "server_vad"}}, "unsupported_field"),
        ({"model": "whisper-1"}, "model_not_found"),
        ({"file": ("a.wav", b"")}, "invalid_audio"),
        ({"file": ("a.m4a", b"\x00\x00\x00\x18ftypM4A \x00\x00\x00\x00")}, "invalid_audio"),
        ({"file": ("a.webm", b"\x1aE\xdf\xa3" + bytes(40))}, "invalid_audio"),
    ],
)
def test_what_cannot_be_heard_is_refused(client, change, code):
    """WH-14: with a status and a reason, never as a transcript."""
    with pytest.raises(openai.APIStatusError) as error:
        client.audio.transcriptions.create(**{"model": "echo", "file": WAV, **change})
    assert error.value.code == code
    assert error.value.status_code in (400, 404)
    if code == "invalid_audio" and change["file"][1]:
        assert "wav, flac, ogg (vorbis, opus) and mp3" in error.value.message


def test_a_form_without_a_file_and_a_body_that_is_none_are_refused(server):
    head = {"content_type": "multipart/form-data; boundary=b"}
    path = "/v1/audio/transcriptions"
    form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\necho\r\n--b--\r\n'
    assert server.ask("POST", path, form, **head).json["error"]["code"] == "missing_field"
    assert server.ask("POST", path, b"x", content_type="audio/wav").status == 415
    answer = server.post(path, {"url": "https://example.org/a.wav"})
    assert (answer.status, answer.json["error"]["code"]) == (400, "media_not_allowed")


# a tiny Whisper ----------------------------------------------------------------------------------

SHORT = ("a.wav", encoded(np.random.default_rng(0).normal(0, 0.1, 15_000), 16_000))
ONCE = 0.2
"""With random weights a greedy answer is doubtful, and drawn again at five temperatures."""


@pytest.mark.shared
def test_whisper_says_the_same_streamed_and_not_and_with_a_named_language(english):
    with client_of(english) as client:
        ask = client.audio.transcriptions.create
        whole = ask(model="tiny", file=SHORT)
        events = list(ask(model="tiny", file=SHORT, stream=True))
        named = ask(model="tiny", file=SHORT, language="en")
    assert whole.text.startswith("w")
    assert whole.usage.seconds == pytest.approx(0.9375, abs=1e-3)
    assert events[-1].text == whole.text == named.text
    assert "".join(event.delta for event in events[:-1]) == whole.text
    assert len(events) >= 2


@pytest.mark.shared
def test_whispers_segments_are_in_order_and_inside_the_sound(english):
    with client_of(english) as client:
        asked = {"model": "tiny", "file": SHORT, "temperature": ONCE}
        heard = client.audio.transcriptions.create(**asked, response_format="verbose_json")
        srt = client.audio.transcriptions.create(**asked, response_format="srt")
    assert heard.language == "en"
    times = [time for segment in heard.segments for time in (segment.start, segment.end)]
    assert times == sorted(times)
    assert times[-1] <= heard.duration + 0.01
    assert all(segment.avg_logprob < 0 for segment in heard.segments)
    assert srt.count(" --> ") == len(heard.segments)


@pytest.mark.shared
def test_a_seed_makes_a_sampled_transcript_again(english):
    with client_of(english) as client:
        asked = {
            "model": "tiny",
            "file": SHORT,
            "temperature": 1,
            "extra_body": {"seed": 7},
        }
        texts = {client.audio.transcriptions.create(**asked).text for _ in range(3)}
        greedy = client.audio.transcriptions.create(model="tiny", file=SHORT).text
    assert len(texts) == 1
    assert texts != {greedy}


@pytest.mark.shared
def test_sound_longer_than_a_window_is_heard_to_its_end(english):
    """WH-04, WH-12."""
    longer = ("b.wav", encoded(np.random.default_rng(0).normal(0, 0.1, 56_000), 16_000))
    asked = {"model": "tiny", "file": longer, "temperature": 0.5, "extra_body": {"seed": 1}}
    with client_of(english) as client:
        heard = client.audio.transcriptions.create(**asked, response_format="verbose_json")
        events = list(client.audio.transcriptions.create(**asked, stream=True))
    times = [time for segment in heard.segments for time in (segment.start, segment.end)]
    assert times == sorted(times)
    assert 2 * TINY_HEARS_S < times[-1] <= heard.duration == 3.5
    assert events[-1].text == heard.text
    assert all(0 <= segment.no_speech_prob <= 1 for segment in heard.segments)
    assert {segment.temperature for segment in heard.segments} == {0.5}


@pytest.mark.shared
def test_who_leaves_in_the_middle_of_long_sound_leaves_nothing_behind(english):
    long = encoded(np.random.default_rng(0).normal(0, 0.1, 60 * 16_000), 16_000)
    with client_of(english) as client:
        stream = client.audio.transcriptions.create(
            model="tiny", file=("c.wav", long), temperature=1, stream=True
        )
        assert next(iter(stream)).type == "transcript.text.delta"
        assert english.metric("mstar_requests_open") == 1
        stream.close()
    end = time.monotonic() + 10
    while english.metric("mstar_requests_open") and time.monotonic() < end:
        time.sleep(0.01)
    assert english.metric("mstar_requests_open") == 0


@pytest.mark.shared
def test_whispers_words_are_timed_in_order_and_inside_the_sound(english):
    with client_of(english) as client:

        def ask(granularities):
            return client.audio.transcriptions.create(
                model="tiny",
                file=SHORT,
                temperature=ONCE,
                response_format="verbose_json",
                timestamp_granularities=granularities,
            )

        both, segments = ask(["segment", "word"]), ask(["segment"])
    assert [s.text for s in both.segments] == [s.text for s in segments.segments]
    assert [s.tokens for s in both.segments] == [s.tokens for s in segments.segments]
    assert segments.words is None
    assert "".join(word.word for word in both.words) == both.text.replace(" ", "")
    times = [time for word in both.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[-1] <= both.duration
    assert both.segments[0].start == both.words[0].start  # where words are timed, theirs are its
    assert both.segments[-1].end == both.words[-1].end


@pytest.mark.shared
def test_an_english_model_neither_translates_nor_hears_german(english):
    """WH-08."""
    with client_of(english) as client:
        with pytest.raises(openai.BadRequestError) as error:
            client.audio.translations.create(model="tiny", file=SHORT)
        assert "multilingual" in error.value.message
        with pytest.raises(openai.BadRequestError) as error:
            client.audio.transcriptions.create(model="tiny", file=SHORT, language="de")
        assert error.value.param == "language"


@pytest.mark.shared
def test_a_multilingual_model_translates_and_finds_out_the_language(multilingual):
    with client_of(multilingual) as client:
        german = {"model": "tiny", "file": SHORT, "extra_body": {"language": "de"}}
        german["temperature"] = ONCE
        translated = client.audio.translations.create(**german)
        heard = client.audio.transcriptions.create(**german)
        verbose = client.audio.translations.create(**german, response_format="verbose_json")
        found = client.audio.transcriptions.create(
            model="tiny", file=SHORT, response_format="verbose_json"
        )
        models = client.models.retrieve("tiny")
    assert translated.text != heard.text
    assert verbose.model_extra["task"] == "translate"
    assert verbose.language == "de"
    assert found.language in models.model_extra["traits"]["languages"]


# the published weights ---------------------------------------------------------------------------


def plain(text):
    return "".join(c for c in text.lower() if c.isalnum() or c == " ").split()


@pytest.mark.shared
@pytest.mark.weights
def test_published_weights_hear_what_was_said(real):
    folder = SHARED / "data" / "audio"
    if not folder.is_dir():
        pytest.skip(f"the folder of recordings {folder} is not there")
    with client_of(real) as client:

        def ask(name, **wishes):
            file = (name, (folder / f"{name}.wav").read_bytes())
            return client.audio.transcriptions.create(model="whisper", file=file, **wishes)

        weather = ask("espeak_weather")
        events = list(ask("espeak_weather", stream=True))
        verbose = ask("cards_001", response_format="verbose_json")
        vtt = ask("cards_001", response_format="vtt")
    assert " ".join(plain(weather.text)) == "good morning what is the weather like today"
    assert events[-1].text == weather.text
    assert plain(verbose.text) == ["10", "of", "clubs"]
    assert verbose.segments[-1].end <= verbose.duration + 0.01
    assert -1 < verbose.segments[0].avg_logprob < 0
    assert vtt.startswith("WEBVTT\n\n00:00:00.")


@pytest.mark.shared
@pytest.mark.weights
def test_published_weights_hear_what_crosses_a_window_alike_in_every_format(real):
    """WH-02: 45 s, cut in the middle of a sentence."""
    folder = SHARED / "data" / "audio"
    if not folder.is_dir():
        pytest.skip(f"the folder of recordings {folder} is not there")
    names = ("librivox_austen_0870", "librivox_austen_0920", "librivox_austen_0890")
    sounds = [soundfile.read(folder / f"{name}.wav", dtype="float32")[0] for name in names]
    samples = np.tile(np.concatenate(sounds), 3)[: 45 * 16_000]
    file = ("long.flac", encoded(samples, 16_000, "FLAC"))
    with client_of(real) as client:

        def ask(style):
            return client.audio.transcriptions.create(
                model="whisper", file=file, response_format=style
            )

        verbose, text, srt, vtt = map(ask, ("verbose_json", "text", "srt", "vtt"))
    assert text == f"{verbose.text}\n"
    assert len(verbose.segments) > 2
    assert verbose.segments[-1].end <= verbose.duration == 45
    assert plain(verbose.text).count("prudently") >= 2
    for told in (srt, vtt):
        lines = [line for line in told.splitlines() if line and line[0].isalpha()]
        assert plain(" ".join(lines).removeprefix("WEBVTT ")) == plain(verbose.text)


@pytest.mark.shared
@pytest.mark.weights
def test_published_weights_time_words_where_they_are_said(real):
    """Each recording behind two seconds of silence; segments begin and end with their words."""
    folder = SHARED / "data" / "audio"
    if not folder.is_dir():
        pytest.skip(f"the folder of recordings {folder} is not there")
    known = {
        "librivox_austen_0870": "prudently",
        "espeak_weather": "weather",
        "librivox_austen_0890": "selfish",
        "ps_goforward": "forward",
        "librivox_austen_0920": "amiable",
        "flite_rms_train": "London",
    }
    sounds = [soundfile.read(folder / f"{name}.wav", dtype="float32")[0] for name in known]
    silence = np.zeros(2 * 16_000, np.float32)
    file = ("a.wav", encoded(np.concatenate([p for s in sounds for p in (silence, s)]), 16_000))
    with client_of(real) as client:

        def ask(style, **more):
            return client.audio.transcriptions.create(
                model="whisper", file=file, response_format=style, **more
            )

        timed = ask("verbose_json", timestamp_granularities=["word"])
        plainly, srt = ask("verbose_json"), ask("srt")
    assert timed.text == plainly.text
    said = "".join(word.word for word in timed.words)
    assert said == timed.text.replace(" ", "")
    assert [s.text for s in timed.segments] == [s.text for s in plainly.segments]
    assert timed.segments[0].start == timed.words[0].start
    assert timed.segments[-1].end == timed.words[-1].end
    assert srt.count(" --> ") == len(timed.segments)
    end = 0.0
    for word, sound in zip(known.values(), sounds, strict=True):
        begin = end + 2
        end = begin + len(sound) / 16_000
        (spoken,) = [w for w in timed.words if w.word.strip(".,") == word]
        assert begin < spoken.start < spoken.end < end + 0.2, spoken
