"""Sound of several windows over HTTP: what runs, what is counted, and what is left behind."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from mstar_core.config.limits import LimitsConfig
from mstar_core.echo.front import EchoFront
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.link import Arrived
from mstar_core.testing.asgi import call
from mstar_core.testing.scripted_link import ScriptedLink, end
from mstar_core.testing.sound import encoded

PATH = "/v1/audio/transcriptions"
HEAD = [("content-type", "multipart/form-data; boundary=x")]
SOUND = encoded(np.zeros(100 * 4_000, np.float32), 4_000)
"""Four windows of echo's."""


class Together(EchoFront):
    """Echo, whose windows are always heard together."""

    def transcription(self, sound, **options):
        return super().transcription(sound, **options, batched=True)


class Wordless(EchoFront):
    """Echo that does not time words."""

    def traits(self):
        return super().traits() | {"word_timestamps": False}


def form(**fields):
    parts = [
        f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    return b"".join(parts) + head + SOUND + b"\r\n--x--\r\n"


def echoed(request):
    """The window's own text."""
    ids = request.arrays["ids"].tolist()
    yield Arrived(tokens=ids, logprobs=[-0.25] * len(ids))
    yield Arrived(ended=end("stop", generated=len(ids)))


@pytest.fixture
def serve():
    made = []

    def start(script, front=None, **limits):
        front = front or EchoFront()
        service = Service(
            limits=LimitsConfig(**limits),
            link=ScriptedLink(script),
            card=ModelCard(
                name="echo", capabilities=front.capabilities(), max_context=65_536, created=0
            ),
            front=front,
        )
        made.append(service)
        return service

    yield start
    for service in made:
        service.close()


def ask(service, **fields):
    return asyncio.run(call(create_app(service), PATH, form(**fields), headers=HEAD))


def test_words_are_not_timed_by_a_model_that_cannot(serve):
    service = serve(echoed, Wordless())
    told = ask(service, response_format="verbose_json", **{"timestamp_granularities[]": "word"})
    assert told.status == 400
    assert json.loads(told.body)["error"]["code"] == "unsupported_field"


def test_windows_are_heard_one_after_the_other_and_a_segment_is_streamed_as_it_is_final(serve):
    service = serve(echoed)
    told = ask(service, stream="true")
    *events, done = told.body.decode().removesuffix("\n\n").split("\n\n")
    events = [json.loads(event.removeprefix("data: ")) for event in events]
    assert done == "data: [DONE]"
    assert [event.get("delta") for event in events[:-1]] == [
        "30.00 s of sound",
        " 30.00 s of sound",
        " 30.00 s of sound",
        " 10.00 s of sound",
    ]
    assert events[-1]["text"] == "".join(event["delta"] for event in events[:-1])
    assert events[-1]["usage"] == {"type": "duration", "seconds": 100.0}
    assert len(service.link.generations) == 4


def test_windows_that_end_in_any_order_are_told_in_theirs(serve):
    def later_is_faster(request):
        yield {b"30": 0.05, b"10": 0.0}[bytes(request.arrays["ids"].tolist())[:2]]
        yield from echoed(request)

    told = ask(serve(later_is_faster, Together()), response_format="verbose_json")
    segments = told.json()["segments"]
    assert [segment["end"] for segment in segments] == [30, 60, 90, 100]
    assert [segment["avg_logprob"] for segment in segments] == [-0.25] * 4


def test_what_is_counted_is_what_runs_at_the_same_time(serve):
    service, counted = serve(echoed), []
    count = service.admission.count

    def noted(ticket, tokens, audio_s):
        count(ticket, tokens, audio_s)
        counted.append((ticket.tokens, ticket.audio_s))

    service.admission.count = noted
    assert ask(service).status == 200
    one = 2 * len("30.00 s of sound") + 1
    assert counted == [(0, 100.0), (one, 100.0)]
    together = serve(echoed, Together(), max_open_tokens=4 * one - 1)
    assert ask(together).json()["error"]["code"] == "limit_exceeded"
    assert ask(serve(echoed, max_open_tokens=one)).status == 200


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_window_that_fails_ends_the_others(serve, stream):
    def second_fails(request):
        if len(service.link.generations) == 1:
            return [Arrived(ended=end("error", code="request_failed"))]
        return [30.0]

    service = serve(second_fails, Together())
    told = ask(service, stream=stream)
    assert (told.status, told.json()["error"]["code"]) == (500, "request_failed")
    assert len(service.link.generations) == 4
    assert [each.was_aborted for each in service.link.generations] == [True, False, True, True]
    assert service.admission.tokens == 0


def test_a_fault_behind_the_first_segment_is_told_in_the_stream(serve):
    def third_fails(request):
        if len(service.link.generations) == 2:
            return [Arrived(ended=end("error", code="request_failed"))]
        return echoed(request)

    service = serve(third_fails)
    told = ask(service, stream="true")
    assert told.status == 200
    assert told.body.count(b"transcript.text.delta") == 2
    assert b"request_failed" in told.body
    assert b"[DONE]" not in told.body


def test_a_request_that_takes_too_long_ends_its_windows(serve):
    def slow(request):
        yield 60.0

    service = serve(slow, Together(), request_timeout_s=0.5)
    assert ask(service).status == 408
    assert all(each.was_aborted for each in service.link.generations)
