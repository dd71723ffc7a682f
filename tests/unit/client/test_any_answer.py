"""Whatever a server says, a client says which of its errors it is, or gives a result."""

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from mstar_core.client import calls
from mstar_core.client.errors import ClientError
from mstar_core.client.events import CompletionReading, TranscriptReading
from mstar_core.client.http1 import Head, ResponseParser
from mstar_core.client.reading import Reply
from mstar_core.client.sse import EventParser

NAMES = ["choices", "delta", "content", "text", "index", "finish_reason", "usage", "error", "type"]
NAMES += ["message", "data", "tokens", "segments", "prompt_tokens", "tool_calls", "code", "id"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)
CALLS = (
    calls.chat(None, [], {}),
    calls.transcribe("transcriptions", None, b"", {}),
    calls.models(),
    calls.tokenize(None, ""),
    calls.detokenize(None, []),
    calls.ready(),
)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(data):
    with contextlib.suppress(ClientError):
        parser = ResponseParser("x")
        parser.feed(b"HTTP/1.1 200 OK\r\n" + data)
        parser.eof()


@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_an_error(data):
    with contextlib.suppress(ClientError):
        EventParser("x").feed(b"data: " + data + b"\n\n")


@given(VALUES, st.sampled_from(["application/json", "text/plain"]))
def test_any_json_is_a_result_or_an_error(value, kind):
    head = Head(status=200, headers={"content-type": kind}, keeps_alive=True)
    reply = Reply(where="x", head=head, body=json.dumps(value).encode())
    reply.error()
    for call in CALLS:
        with contextlib.suppress(ClientError):
            call.result(reply)


@given(st.lists(VALUES, max_size=3))
def test_any_json_is_events_or_an_error(values):
    for kind in (CompletionReading, TranscriptReading):
        with contextlib.suppress(ClientError):
            reading = kind("x", None)
            for value in values:
                list(reading.feed(f"data: {json.dumps(value)}\n\n".encode()))
            reading.end()
