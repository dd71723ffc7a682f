"""Both clients over real sockets: every call, every way a stream may go."""

import asyncio
import json
import subprocess
import sys
import time

import pytest

from mstar_core.client import (
    ApiError,
    AsyncClient,
    BadAnswer,
    Client,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    Delta,
    Finish,
    TimedOut,
    Transcript,
    Usage,
)
from mstar_core.errors import ConfigError, RequestError

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]
ODD = "✅\u0085\u2028x\n🏔"


class Sync:
    """Calls a method of a client, and gathers a stream."""

    def call(self, url, name, *args, settings=None, **options):
        with Client(url, **(settings or {})) as client:
            return getattr(client, name)(*args, **options)

    def events(self, url, name, *args, into=None, settings=None, **options):
        found = [] if into is None else into
        with (
            Client(url, **(settings or {})) as client,
            getattr(client, name)(*args, **options) as stream,
        ):
            found.extend(stream)
        return found

    def first(self, url, name, *args):
        """The first event, and then the stream is closed."""
        with Client(url) as client:
            stream = getattr(client, name)(*args)
            event = next(stream)
            stream.close()
            assert list(stream) == []
            return event


class Async:
    """The same, in an event loop."""

    def call(self, url, name, *args, settings=None, **options):
        async def run():
            async with AsyncClient(url, **(settings or {})) as client:
                return await getattr(client, name)(*args, **options)

        return asyncio.run(run())

    def events(self, url, name, *args, into=None, settings=None, **options):
        found = [] if into is None else into

        async def run():
            async with (
                AsyncClient(url, **(settings or {})) as client,
                getattr(client, name)(*args, **options) as stream,
            ):
                async for event in stream:
                    found.append(event)

        asyncio.run(run())
        return found

    def first(self, url, name, *args):
        async def run():
            async with AsyncClient(url) as client:
                stream = getattr(client, name)(*args)
                event = await anext(stream)
                stream.close()
                assert [each async for each in stream] == []
                return event

        return asyncio.run(run())


@pytest.fixture(params=[Sync, Async], ids=["sync", "async"])
def clients(request):
    return request.param()


def test_a_chat_gives_its_text_reason_usage_and_ids(clients, stand_in, wire):
    message = {"content": "Hi", "reasoning_content": "hm", "tool_calls": [{"id": "c"}]}
    told = {
        "id": "a",
        "model": "m",
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    stand_in.answers[CHAT] = wire.answer(told, x_request_id="mine")
    got = clients.call(
        stand_in.url + "/v1",
        "chat",
        HELLO,
        settings={"api_key": "k", "model": "m"},
        request_id="mine",
        max_tokens=2,
    )
    assert (got.text, got.finish_reason, got.request_id, got.id) == ("Hi", "stop", "mine", "a")
    assert (got.choices[0].reasoning, got.choices[0].tool_calls) == ("hm", ({"id": "c"},))
    assert got.usage == Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, cached_tokens=1)
    asked = stand_in.asked[0]
    assert asked.json == {"model": "m", "messages": HELLO, "max_tokens": 2}
    assert asked.headers["authorization"] == "bearer k"
    assert asked.headers["x-request-id"] == "mine"


def test_a_completion_has_a_choice_for_each_prompt(clients, stand_in, wire):
    choices = [{"index": i, "text": t, "finish_reason": "length"} for i, t in enumerate("ab")]
    stand_in.answers["/v1/completions"] = wire.answer({"choices": choices})
    got = clients.call(stand_in.url, "complete", [[1, 2], [3]], n=1)
    assert [each.text for each in got.choices] == ["a", "b"]
    assert stand_in.asked[0].json == {"prompt": [[1, 2], [3]], "n": 1}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stream_gives_its_events_whatever_its_pieces(clients, stand_in, wire, end, size):
    """API-11: odd separators are text, and no character is cut, however the bytes are cut."""
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    told = [wire.chat_chunk(""), wire.chat_chunk(ODD), wire.chat_chunk("!", finish="stop")]
    events = [wire.event(each, end) for each in [*told, wire.chat_chunk(usage=usage), "[DONE]"]]
    data = b": keep-alive" + end + end + b"".join(events)
    stand_in.pause_s = 0
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    stand_in.answers[CHAT] = wire.chunked(pieces)
    assert clients.events(stand_in.url, "stream_chat", HELLO) == [
        Delta(text=ODD),
        Delta(text="!"),
        Finish(reason="stop"),
        Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3),
    ]
    assert stand_in.asked[0].json["stream"] is True


@pytest.mark.parametrize(
    ("chunks", "done", "whole", "missing"),
    [
        (["a", None], True, True, "finish_reason"),
        ([], True, True, "finish_reason"),
        (["a", "stop"], False, True, r"\[DONE\]"),
        (["a"], False, False, "in the middle"),
    ],
)
def test_a_stream_that_is_cut_is_lost_behind_what_it_said(
    clients, stand_in, wire, chunks, done, whole, missing
):
    """API-08: a stream without its finish_reason and ``[DONE]`` is never a success."""
    told = [wire.chat_chunk(finish=c) if c == "stop" else wire.chat_chunk(c) for c in chunks]
    events = [wire.event(each) for each in [*told, *(["[DONE]"] if done else [])]]
    stand_in.answers[CHAT] = wire.chunked(events, whole=whole)
    found = []
    with pytest.raises(ConnectionLost, match=missing) as caught:
        clients.events(stand_in.url, "stream_chat", HELLO, into=found)
    assert caught.value.request_id == "req-1"
    assert found[:1] == ([Delta(text="a")] if chunks else [])


def test_one_choice_of_two_without_an_end_is_lost(clients, stand_in, wire):
    """API-08: the finish of one choice is not the finish of the other."""
    told = [wire.chat_chunk("a"), wire.chat_chunk("b", index=1), wire.chat_chunk(finish="stop")]
    stand_in.answers[CHAT] = wire.chunked([wire.event(e) for e in [*told, "[DONE]"]])
    with pytest.raises(ConnectionLost, match="finish_reason"):
        clients.events(stand_in.url, "stream_chat", HELLO, n=2)


def test_an_error_in_a_stream_is_raised_behind_what_was_said(clients, stand_in, wire):
    """API-08: all of it in one piece, and yet nothing that came before the error is lost."""
    error = {"message": "it broke", "type": "server_error", "code": "request_failed"}
    data = wire.event(wire.chat_chunk("a")) + wire.event({"error": error})
    stand_in.answers[CHAT] = wire.chunked([data])
    found = []
    with pytest.raises(ApiError, match="it broke") as caught:
        clients.events(stand_in.url, "stream_chat", HELLO, into=found)
    assert found == [Delta(text="a")]
    assert (caught.value.status, caught.value.code) == (200, "request_failed")
    assert caught.value.request_id == "req-1"


def test_an_error_has_its_facts(clients, stand_in, wire):
    error = {"message": "no such", "type": "invalid_request_error", "param": "model", "code": "x"}
    stand_in.answers[CHAT] = wire.answer({"error": error}, status=404, x_request_id="r")
    with pytest.raises(ApiError) as caught:
        clients.call(stand_in.url, "chat", HELLO)
    got = caught.value
    assert (got.status, got.message, got.kind) == (404, "no such", "invalid_request_error")
    assert (got.param, got.code, got.request_id, got.retry_after) == ("model", "x", "r", None)


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"[1]", b'{"error": "flat"}', b"\xff"])
def test_an_error_of_any_shape_is_an_api_error(clients, stand_in, wire, body):
    stand_in.answers[CHAT] = wire.answer(body, status=500)
    with pytest.raises(ApiError) as caught:
        clients.events(stand_in.url, "stream_chat", HELLO)
    assert caught.value.status == 500
    assert caught.value.message


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b"{}", b'{"choices": []}', b"\xff", b'{"choices": [1]}']
)
def test_an_answer_of_another_shape_is_a_bad_answer(clients, stand_in, wire, body):
    stand_in.answers[CHAT] = wire.answer(body)
    with pytest.raises(BadAnswer):
        clients.call(stand_in.url, "chat", HELLO)


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_as_often_as_was_allowed(clients, stand_in, wire, status):
    busy = wire.answer({"error": {"message": "later"}}, status=status, retry_after="0.01")
    stand_in.answers[CHAT] = [busy, busy, wire.completion_of]
    assert clients.call(stand_in.url, "chat", HELLO).text
    assert len(stand_in.asked) == 3
    stand_in.answers[CHAT] = [busy, busy, wire.completion_of]
    with pytest.raises(ApiError) as caught:
        clients.call(stand_in.url, "chat", HELLO, settings={"retries": 1})
    assert caught.value.retry_after == 0.01
    assert len(stand_in.asked) == 5


@pytest.mark.parametrize(
    ("status", "headers"),
    [(503, {}), (429, {"retry_after": "3600"}), (500, {"retry_after": "0"})],
)
def test_a_call_that_may_have_begun_is_not_sent_again(clients, stand_in, wire, status, headers):
    stand_in.answers[CHAT] = wire.answer(status=status, **headers)
    with pytest.raises(ApiError):
        clients.call(stand_in.url, "chat", HELLO)
    assert len(stand_in.asked) == 1


def test_closing_a_stream_closes_its_connection(clients, stand_in, wire):
    events = [wire.event(wire.chat_chunk("a"))] * 5000
    stand_in.answers[CHAT] = wire.chunked(events)
    assert clients.first(stand_in.url, "stream_chat", HELLO) == Delta(text="a")
    assert stand_in.left.wait(10)


def test_a_stream_that_nobody_holds_closes_its_connection(stand_in, wire):
    stand_in.answers[CHAT] = wire.chunked([wire.event(wire.chat_chunk("a"))] * 5000)
    with Client(stand_in.url) as client:
        for _ in client.stream_chat(HELLO):
            break
        assert stand_in.left.wait(10)


def test_a_connection_serves_one_call_after_another(stand_in):
    with Client(stand_in.url) as client:
        assert [client.chat(HELLO).finish_reason for _ in range(3)] == ["length"] * 3
        assert len(list(client.stream_chat(HELLO))) == 6
        assert client.chat(HELLO).text
    assert stand_in.connections == 1


def test_a_connection_of_a_loop_serves_one_call_after_another(stand_in):
    async def run():
        async with AsyncClient(stand_in.url) as client:
            assert (await client.chat(HELLO)).text
            assert len([each async for each in client.stream_chat(HELLO)]) == 6
            assert (await client.chat(HELLO)).text

    asyncio.run(run())
    assert stand_in.connections == 1


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again(stand_in, wire):
    stand_in.answers["/v1/models"] = [*wire.answer({"data": []}), None]
    with Client(stand_in.url) as client:
        for _ in range(3):
            assert client.models() == ()
            time.sleep(0.02)
    assert stand_in.connections == 3


def test_a_transcription_sends_the_file_and_its_fields(clients, stand_in, wire, tmp_path):
    file = tmp_path / 'so "und".wav'
    file.write_bytes(b"RIFF\r\n--x")
    told = {"text": "hi", "language": "en", "duration": 1.5, "words": [{"word": "hi"}]}
    route = "/v1/audio/transcriptions"
    stand_in.answers[route] = wire.answer(told, x_request_id="r")
    got = clients.call(
        stand_in.url,
        "transcribe",
        file,
        model="w",
        timestamp_granularities=["word", "segment"],
        language=None,
        stream=False,
    )
    assert (got.text, got.language, got.duration, got.request_id) == ("hi", "en", 1.5, "r")
    assert got.words == ({"word": "hi"},)
    body = stand_in.asked[0].body
    assert b'name="model"\r\n\r\nw\r\n' in body
    assert body.count(b'name="timestamp_granularities[]"\r\n\r\n') == 2
    assert b'name="stream"\r\n\r\nfalse\r\n' in body
    assert b"language" not in body
    assert b'filename="so__und_.wav"\r\n' in body
    assert b"\r\n\r\nRIFF\r\n--x\r\n--" in body


def test_a_transcription_may_be_a_document_and_a_translation_too(clients, stand_in, wire):
    document = "1\n00:00:00,000 --> 00:00:01,000\nHi ✅\n"
    for route in ("transcriptions", "translations"):
        stand_in.answers[f"/v1/audio/{route}"] = wire.answer(
            document.encode(), content_type="application/x-subrip"
        )
    srt = {"response_format": "srt"}
    assert clients.call(stand_in.url, "transcribe", b"x", **srt).text == document
    assert clients.call(stand_in.url, "translate", b"x", **srt).text == document


def test_a_transcription_is_streamed_to_its_whole(clients, stand_in, wire):
    done = {"type": "transcript.text.done", "text": "a b"}
    events = [wire.event({"type": "transcript.text.delta", "delta": d}) for d in ("a", " b")]
    route = "/v1/audio/transcriptions"
    stand_in.answers[route] = wire.chunked([*events, wire.event(done)])
    *deltas, whole = clients.events(stand_in.url, "stream_transcribe", b"x")
    assert deltas == [Delta(text="a"), Delta(text=" b")]
    assert isinstance(whole, Transcript)
    assert (whole.text, whole.request_id) == ("a b", "req-1")
    stand_in.answers[route] = wire.chunked(events)
    with pytest.raises(ConnectionLost, match=r"transcript\.text\.done"):
        clients.events(stand_in.url, "stream_transcribe", b"x")


def test_speech_is_bytes_whole_or_in_pieces(clients, stand_in, wire):
    route = "/v1/audio/speech"
    stand_in.answers[route] = wire.chunked([b"\0\1", b"\2"], "audio/pcm")
    assert clients.call(stand_in.url, "speak", "Hi", voice="v") == b"\0\1\2"
    assert stand_in.asked[0].json == {"input": "Hi", "voice": "v"}
    assert b"".join(clients.events(stand_in.url, "stream_speak", "Hi")) == b"\0\1\2"
    stand_in.answers[route] = wire.chunked([b"\0\1"], "audio/pcm", whole=False)
    with pytest.raises(ConnectionLost):
        clients.events(stand_in.url, "stream_speak", "Hi")


def test_models_tokens_and_cancelling(clients, stand_in, wire):
    card = {"id": "m", "owned_by": "o", "routes": ["chat"]}
    stand_in.answers["/v1/models"] = wire.answer({"data": [card]})
    stand_in.answers["/tokenize"] = wire.answer({"tokens": [1, 2], "count": 2})
    stand_in.answers["/detokenize"] = wire.answer({"prompt": "ab"})
    stand_in.answers["/v1/requests/r-1/cancel"] = wire.answer()
    (model,) = clients.call(stand_in.url, "models")
    assert (model.id, model.owned_by, model.raw["routes"]) == ("m", "o", ["chat"])
    assert clients.call(stand_in.url, "tokenize", "ab") == (1, 2)
    assert clients.call(stand_in.url, "tokenize", HELLO) == (1, 2)
    assert clients.call(stand_in.url, "detokenize", (1, 2)) == "ab"
    assert clients.call(stand_in.url, "cancel", "r-1") is None
    sent = [each.json for each in stand_in.asked if each.path.endswith("tokenize")]
    assert sent == [{"prompt": "ab"}, {"messages": HELLO}, {"tokens": [1, 2]}]
    with pytest.raises(RequestError, match="request_id"):
        clients.call(stand_in.url, "cancel", "../x")


def test_readiness_is_told_and_waited_for(clients, stand_in, wire):
    starting = {"phase": "weights", "done": 1, "total": 4, "eta_s": 2.5}
    stand_in.answers["/ready"] = wire.answer(starting, status=503)
    found = clients.call(stand_in.url, "ready")
    assert (found.ready, found.phase, found.done, found.total) == (False, "weights", 1, 4)
    assert found.eta_s == 2.5
    with pytest.raises(TimedOut, match="weights after 0 s"):
        clients.call(stand_in.url, "wait_ready", 0)
    not_yet = wire.answer(starting, status=503)
    stand_in.answers["/ready"] = [not_yet, not_yet, wire.answer({"status": "ok"})]
    assert clients.call(stand_in.url, "wait_ready", 10).ready
    stand_in.answers["/ready"] = wire.answer(status=404)
    with pytest.raises(ApiError):
        clients.call(stand_in.url, "ready")
    stand_in.answers["/live"] = wire.answer()
    assert clients.call(stand_in.url, "live") is True


def test_nobody_at_the_address_is_connect_failed(clients, stand_in):
    url = stand_in.url
    stand_in.stop()
    with pytest.raises(ConnectFailed, match=url):
        clients.call(url, "chat", HELLO)
    with pytest.raises(TimedOut, match="not listening"):
        clients.call(url, "wait_ready", 0.05)


def test_silence_is_timed_out(clients, stand_in, wire):
    stand_in.pause_s = 2.0
    stand_in.answers[CHAT] = wire.chunked([wire.event(wire.chat_chunk("a"))])
    with pytest.raises(TimedOut, match=r"nothing for 0\.1 s"):
        clients.events(stand_in.url, "stream_chat", HELLO, settings={"read_s": 0.1})
    with pytest.raises(TimedOut):
        clients.call(stand_in.url, "chat", HELLO, settings={"read_s": 0.1})


def test_a_unix_socket_is_spoken_to(clients, unix_stand_in):
    assert clients.call(unix_stand_in.url, "chat", HELLO).text
    assert unix_stand_in.asked[0].headers["host"] == "localhost"


def test_a_large_body_that_is_refused_while_it_is_sent_tells_why(clients, stand_in, wire):
    refusal = wire.answer({"error": {"message": "too large"}}, status=413, connection="close")
    stand_in.answers["/v1/audio/transcriptions"] = [*refusal, None]
    with pytest.raises(ApiError, match="too large"):
        clients.call(stand_in.url, "transcribe", b"x" * 3_000_000)


def test_what_cannot_be_sent_is_refused_before_it_is(clients, stand_in):
    for options in ({"temperature": float("nan")}, {"seed": object()}, {"request_id": "a\nb"}):
        with pytest.raises(RequestError):
            clients.call(stand_in.url, "chat", HELLO, **options)
    with pytest.raises(RequestError, match=r"nowhere\.wav"):
        clients.call(stand_in.url, "transcribe", "nowhere.wav")
    with pytest.raises(ConfigError):
        clients.call("nowhere", "models")
    assert stand_in.asked == []


def test_every_error_is_a_client_error():
    for kind in (ApiError, BadAnswer, ConnectFailed, ConnectionLost, TimedOut):
        assert issubclass(kind, ClientError)


def test_the_client_imports_nothing_heavy():
    heavy = ("torch", "numpy", "asyncio", "ssl", "http.client", "email", "uuid")
    code = (
        "import sys, json; import mstar_core.client; "
        f"print(json.dumps([m for m in {heavy!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []
