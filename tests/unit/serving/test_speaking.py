"""Speech over HTTP of a model whose sound comes as items of a stream, in one part or several."""

from __future__ import annotations

import asyncio
import base64
import io
import json

import numpy as np
import pytest
import soundfile

from mstar_core.config.limits import LimitsConfig
from mstar_core.echo.front import EchoFront
from mstar_core.model.front import Front
from mstar_core.resample import resample
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.link import Arrived
from mstar_core.testing.asgi import call
from mstar_core.testing.scripted_link import ScriptedLink, end
from mstar_core.testing.sound import encoded, tone

PATH = "/v1/audio/speech"
RATE = 24_000
FRAME = 1920
HEARD = ("reference", "reference_rate", "reference_text", "speaker_only")
RECORDING = base64.b64encode(encoded(tone(0.5, 16_000), 16_000)).decode()


class Sounding(EchoFront):
    """Its sound is what comes out of the engine, and it speaks ten characters at once."""

    speech_chars = 10
    sound = Front.sound

    def __init__(self):
        super().__init__()
        self.asked = []

    def speech_request(self, text, *, language=None, instructions=None, **options):
        self.heard = {n: options.pop(n) for n in list(options) if n in HEARD}
        self.asked.append((text, language, instructions, options))
        return super().speech_request(text, **options)

    def speech_options(self):
        return frozenset({"language", "instructions", "reference"})

    def traits(self):
        return {**super().traits(), "languages": ["auto", "german"], "default_voice": "tone"}


def frames(request, count=3):
    """The sound of a part: noise of its own."""
    draw = np.random.default_rng(request.arrays["ids"])
    return draw.normal(0, 0.2, (count, FRAME)).astype(np.float32).clip(-1, 1)


def spoken(request):
    """Two frames and one more, with tokens beside them and between."""
    sound = frames(request)
    yield Arrived(tokens=[5])
    yield Arrived(tokens=[6, 7], items={"sound": sound[:2]})
    yield 0.01
    yield Arrived(items={"sound": sound[2:]})
    yield Arrived(ended=end("stop", generated=3))


def serving(script=spoken, front=None, **limits):
    front = front or Sounding()
    return Service(
        limits=LimitsConfig(**limits),
        link=ScriptedLink(script),
        card=ModelCard(
            name="voice", capabilities=front.capabilities(), max_context=65_536, created=0
        ),
        front=front,
    )


def ask(service, **fields):
    return asyncio.run(call(create_app(service), PATH, json.dumps(fields).encode()))


def pcm(data):
    return np.frombuffer(data, "<i2").astype(np.float32) / 32767


def whole(service):
    return [frames(each.request).ravel() for each in service.link.generations]


def test_the_items_of_a_stream_are_the_sound():
    service = serving()
    told = ask(service, input="hello", response_format="pcm")
    assert told.status == 200
    assert np.abs(pcm(told.body) - whole(service)[0]).max() < 1e-4
    assert len([m for m in told.messages if m.get("body")]) >= 2


def test_long_text_is_spoken_a_part_after_the_other_as_one_sound():
    """As many samples as the parts have, and nothing changed but within 5 ms of a joint."""
    service = serving()
    told = ask(service, input="Hello you. Go on now. Stop.", response_format="pcm")
    assert [asked[0] for asked in service.front.asked] == ["Hello you.", "Go on now.", "Stop."]
    sound, parts = pcm(told.body), whole(service)
    assert len(sound) == sum(map(len, parts))
    changed = np.abs(sound - np.concatenate(parts)) > 1e-4
    joints = np.cumsum([len(part) for part in parts])[:-1]
    near = np.abs(np.arange(len(sound))[:, None] - joints).min(1) <= 120
    assert not changed[~near].any()
    steps = np.abs(np.diff(sound))
    for joint in joints:
        around = np.concatenate([steps[joint - 240 : joint - 1], steps[joint : joint + 240]])
        assert steps[joint - 1] <= 3 * around.max()


def test_events_carry_the_same_bytes_and_the_usage_of_all_parts():
    fields = {"input": "Hello you. Go on now.", "response_format": "wav"}
    plain = ask(serving(), **fields).body
    told = ask(serving(), **fields, stream_format="sse")
    events = [json.loads(line[6:]) for line in told.body.decode().split("\n\n")[:-2]]
    data = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert data == plain
    assert events[-1]["usage"] == {"input_tokens": 2, "output_tokens": 6, "total_tokens": 8}
    assert told.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("style", ["pcm", "wav", "flac", "opus", "mp3"])
def test_the_sample_rate_is_the_one_that_is_asked_for(style):
    service = serving()
    told = ask(service, input="hello", response_format=style, sample_rate=16_000)
    want = resample(whole(service)[0], RATE, 16_000)
    if style == "pcm":
        assert told.headers["content-type"] == "audio/pcm;rate=16000;channels=1"
        got = pcm(told.body)
    else:
        got, rate = soundfile.read(io.BytesIO(told.body), dtype="float32")
        assert rate == 16_000
    if style in ("pcm", "wav", "flac"):
        assert np.abs(got - want.clip(-1, 1)).max() < 2e-4
    else:
        assert len(got) / 16_000 == pytest.approx(len(want) / 16_000, abs=0.15)


def test_what_the_model_takes_is_passed_on_to_every_part():
    service = serving()
    fields = {"voice": "tone", "language": "german", "instructions": "softly", "seed": 7}
    assert ask(service, input="Hello you. Stop.", response_format="pcm", **fields).status == 200
    for _, language, instructions, options in service.front.asked:
        assert (language, instructions, options["voice"]) == ("german", "softly", "tone")
        assert options["sampling"].seed == 7
    assert [each.request.sampling.seed for each in service.link.generations] == [7, 7]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"language": "german"}, "unsupported_field", "language"),
        ({"instructions": "softly"}, "unsupported_field", "instructions"),
        ({"sample_rate": 44_100, "response_format": "opus"}, "invalid_value", "sample_rate"),
        ({"sample_rate": 7_999}, "invalid_value", "sample_rate"),
        ({"sample_rate": True}, "invalid_value", "sample_rate"),
        ({"voice": "nobody"}, "invalid_value", "voice"),
        ({"input": " \n"}, "invalid_value", "input"),
        ({"input": "x" * 101}, "limit_exceeded", "input"),
    ],
    ids=str,
)
def test_what_cannot_be_spoken_is_refused_with_its_field(fields, code, param):
    class Blank(EchoFront):
        def speech_request(self, text, **options):
            return super().speech_request(text.strip() and text, **options)

    told = ask(serving(front=Blank(), max_speech_chars=100), **{"input": "x", **fields})
    assert (told.status, told.json()["error"]["code"]) == (400, code)
    if param != "input" or code == "limit_exceeded":
        assert told.json()["error"]["param"] == param


def test_what_asks_for_nothing_is_taken_by_a_model_that_takes_no_wishes():
    fields = {"language": None, "instructions": "", "response_format": "pcm"}
    assert (
        ask(
            serving(front=EchoFront(), script=lambda r: [Arrived(ended=end("stop"))]),
            input="x",
            **fields,
        ).status
        == 200
    )


def test_a_part_that_was_cut_off_shows_in_the_line_and_one_that_fails_ends_the_sound(caplog):
    def cut(request):
        yield Arrived(items={"sound": frames(request)})
        first = request.arrays["ids"][0] == ord("H")
        yield Arrived(ended=end("length" if first else "stop", generated=3))

    service = serving(cut)
    caplog.set_level("INFO", "mstar_core.serving.requests")
    ask(service, input="Hello you. Go on now.", response_format="pcm")
    fields = caplog.records[-1].fields
    assert (fields["outcome"], fields["output_tokens"], fields["prompt_tokens"]) == ("length", 6, 2)
    assert fields["audio_out_s"] == 6 * FRAME / RATE
    assert 0 < fields["ttfa_ms"] <= fields["total_ms"]

    def fails(request):
        if request.arrays["ids"][0] == ord("G"):
            yield Arrived(
                ended=end(
                    "error",
                    error={"where": "x", "got": "", "want": "", "fix": ""},
                    code="request_failed",
                )
            )
        yield from spoken(request)

    service = serving(fails)
    told = ask(service, input="Hello you. Go on now.", stream_format="sse", response_format="pcm")
    assert b'"request_failed"' in told.body
    assert b"[DONE]" not in told.body


def test_the_next_part_begins_while_one_is_spoken_and_waits_behind_what_others_ask():
    service = serving()
    begun = []

    def noted(request):
        begun.append(len(service.link.generations))
        yield from spoken(request)

    service.link.script = noted
    ask(service, input="One two. Three too. Five six. Seven.", response_format="pcm")
    assert begun == [2, 3, 4, 4]
    assert [each.request.priority for each in service.link.generations] == [0, -1, -1, -1]


def test_who_leaves_in_the_middle_of_a_part_ends_what_has_begun_and_nothing_else_begins():
    def slow(request):
        yield Arrived(items={"sound": frames(request)})
        yield 30.0
        yield Arrived(ended=end("stop"))

    service = serving(slow)

    async def leave():
        sent = []
        body = json.dumps(
            {"input": "Hello you. Go on. Stop. Wait.", "response_format": "pcm"}
        ).encode()
        left = asyncio.Event()

        async def receive():
            if not sent:
                sent.append(1)
                return {"type": "http.request", "body": body, "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message.get("body"):
                left.set()

        from mstar_core.testing.asgi import scope_of

        head = [("host", "localhost"), ("content-type", "application/json")]
        await create_app(service)(scope_of(PATH, "POST", head), receive, send)

    asyncio.run(asyncio.wait_for(leave(), 20))
    assert [each.was_aborted for each in service.link.generations] == [True, True]
    assert service.admission.open == 0


@pytest.mark.parametrize("head", ["", "data:audio/wav;base64,"])
def test_a_recording_of_a_voice_is_decoded_and_given_to_the_model(head):
    """TT-14: as it was sampled; the model brings it to its own rate."""
    service = serving()
    fields = {"reference": head + RECORDING, "reference_text": "la la", "response_format": "pcm"}
    try:
        told = ask(service, input="hello", **fields)
    finally:
        service.close()
    assert told.status == 200, told.body
    heard = service.front.heard
    assert (heard["reference_rate"], heard["reference_text"]) == (16_000, "la la")
    assert heard["speaker_only"] is False
    assert np.abs(heard["reference"] - tone(0.5, 16_000)).max() < 1e-3


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"reference": "???"}, "invalid_value", "reference"),
        ({"reference": "data:audio/wav,abc"}, "invalid_audio", "reference"),
        ({"reference": base64.b64encode(b"no sound").decode()}, "invalid_audio", "reference"),
        ({"reference": RECORDING, "front": EchoFront()}, "unsupported_field", "reference"),
        ({"reference_text": "la"}, "missing_field", "reference"),
        ({"speaker_only": True}, "missing_field", "reference"),
        ({"reference": 3}, "invalid_value", "reference"),
    ],
    ids=[
        "no base64",
        "a data URL of another form",
        "no sound",
        "a model that imitates nobody",
        "a text alone",
        "a flag alone",
        "a number",
    ],
)
def test_a_recording_that_is_none_is_refused_with_its_field(fields, code, param):
    """TT-10, TT-11: and it is never left out of account."""
    fields = dict(fields)
    service = serving(front=fields.pop("front", None))
    try:
        told = ask(service, input="hello", **fields)
    finally:
        service.close()
    assert (told.status, told.json()["error"]["code"]) == (400, code)
    assert told.json()["error"]["param"] == param
    assert not service.link.generations


def test_voices_and_languages_are_listed():
    service = serving()
    told = asyncio.run(call(create_app(service), "/v1/audio/voices"))
    assert told.json() == {
        "voices": ["tone"],
        "default_voice": "tone",
        "languages": ["auto", "german"],
        "default_language": None,
        "sample_rate": RATE,
    }


def test_a_model_that_does_not_speak_has_no_voices():
    class Mute(Front):
        def decode(self, ids):
            return ""

    told = asyncio.run(call(create_app(serving(front=Mute())), "/v1/audio/voices"))
    assert (told.status, told.json()["error"]["code"]) == (404, "route_not_offered")
