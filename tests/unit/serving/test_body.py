"""Bodies are counted while they come, and must have come in time."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from mstar_core.serving.body import MAX_FIELDS
from mstar_core.serving.depth import json_shape
from mstar_core.serving.routes import Route
from mstar_core.testing.asgi import scope_of

LIMIT = 2048


async def count(exchange):
    return Response(str(len(await exchange.http.body())))


async def ignore(exchange):
    return Response(b"unread")


def rig_of(rig, handler=count, **limits):
    routes = [Route(method="POST", path="/v1/do", handler=handler, summary="A test's")]
    return rig(routes=routes, limits={"max_body_bytes": LIMIT, **limits})


def code_of(told):
    return told.status, told.json()["error"]["code"]


def test_a_body_of_exactly_the_limit_is_taken(rig):
    assert rig_of(rig).ask("/v1/do", b"x" * LIMIT).body == b"2048"


@pytest.mark.parametrize(
    "chunks", [[b"x" * (LIMIT + 1)], [b"x" * LIMIT, b"x"], [b"x"] * (LIMIT + 1)]
)
def test_one_byte_more_is_a_413_however_it_comes(rig, chunks):
    told = rig_of(rig).ask("/v1/do", chunks)
    assert code_of(told) == (413, "body_too_large")
    assert told.headers["connection"] == "close"


def test_what_comes_behind_the_limit_is_not_waited_for(rig):
    told = rig_of(rig).ask("/v1/do", [b"x" * (LIMIT + 1)], stalls=True)
    assert code_of(told) == (413, "body_too_large")


@pytest.mark.parametrize("length", ["2049", "99999999999999999999999999"])
def test_a_length_that_is_too_large_is_refused_before_a_byte_is_read(rig, length):
    told = rig_of(rig).ask("/v1/do", [b"x"], headers=[("content-length", length)], stalls=True)
    assert code_of(told) == (413, "body_too_large")


def test_a_length_that_lies_does_not_help(rig):
    chunks = [b"x" * LIMIT, b"x" * LIMIT]
    told = rig_of(rig).ask("/v1/do", chunks, headers=[("content-length", "10")])
    assert code_of(told) == (413, "body_too_large")


def test_a_body_that_never_ends_is_a_408(rig):
    told = rig_of(rig, body_timeout_s=0.05).ask("/v1/do", [b"x", b"y"], stalls=True)
    assert code_of(told) == (408, "request_timeout")
    assert told.headers["connection"] == "close"


def test_a_body_that_drips_is_a_408(rig):
    """Each chunk comes in time, and the whole does not."""
    server = rig_of(rig, body_timeout_s=0.2)
    told = []

    async def run():
        async def receive():
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": b"x", "more_body": len(told) < 1}

        async def send(message):
            told.append(message)

        async with asyncio.timeout(2):
            await server.app(scope_of("/v1/do", "POST", [("host", "localhost")]), receive, send)

    asyncio.run(run())
    assert told[0]["status"] == 408


def test_the_time_for_a_body_is_over_once_it_is_there(rig):
    async def slow(exchange):
        await exchange.http.body()
        await asyncio.sleep(0.2)
        return Response(b"done")

    assert rig_of(rig, slow, body_timeout_s=0.05).ask("/v1/do", b"x").body == b"done"


def test_a_body_that_nobody_reads_is_no_error(rig):
    assert rig_of(rig, ignore).ask("/v1/do", b"x" * LIMIT * 2).body == b"unread"


def depth_of(value):
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def fields_of(value):
    if isinstance(value, dict):
        return len(value) + sum(map(fields_of, value.values()))
    return sum(map(fields_of, value)) if isinstance(value, list) else 0


text = st.text(alphabet='[]{}:"\\ab\N{SNOWMAN}', max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=3),
    max_leaves=30,
)


@given(value=values, ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_the_shape_of_a_text_is_the_shape_of_its_value(value, ascii, indent):
    body = json.dumps(value, ensure_ascii=ascii, indent=indent).encode()
    assert json_shape(body) == (depth_of(value), fields_of(value))


@given(body=st.binary(max_size=64))
def test_any_bytes_have_some_shape(body):
    levels, fields = json_shape(body)
    assert 0 <= levels <= len(body)
    assert 0 <= fields <= len(body)


def test_the_shape_is_carried_across_blocks():
    inner = b'"' + b"[" * (1 << 20) + b'",'
    assert json_shape(b"[" + inner * 3 + b'[{"a:":1}]]') == (3, 1)


def test_a_body_with_too_many_fields_is_refused_before_it_is_parsed(rig):
    def told(fields, text=""):
        names = ",".join(f'"{i}":1' for i in range(fields))
        return server.ask("/v1/do", f'{{"text":"{text}"{"," * bool(fields)}{names}}}'.encode())

    routes = [Route(method="POST", path="/v1/do", handler=count, summary="A test's", body=object)]
    server = rig(routes=routes, limits={"max_body_bytes": 1 << 23})
    assert told(MAX_FIELDS - 1).status == 200
    assert code_of(told(MAX_FIELDS)) == (400, "limit_exceeded")
    assert told(0, text=":" * 2 * MAX_FIELDS).status == 200
