"""The HTTP server over each parser: heads bounded in size and time, errors in the one shape."""

import asyncio
import json
import socket
import time

import pytest
from starlette.responses import Response

from mstar_core.config.server import ServerConfig
from mstar_core.serving import http_server
from mstar_core.serving.http_server import (
    HEAD_S,
    MAX_HEAD_BYTES,
    HttpServer,
    fast_http,
    plain_http,
)

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def size_of_body(scope, receive, send):
    """An application that answers with the length of what it got."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await Response(str(size))(scope, receive, send)


@pytest.fixture(params=[fast_http, plain_http], ids=["httptools", "h11"])
def talk(request):
    """``talk(*pieces, pause_s=0)``: what a server of the parser answers to bytes, to its close."""

    async def run(pieces, pause_s):
        with socket.create_server(("127.0.0.1", 0)) as sock:
            server = HttpServer(size_of_body, ServerConfig(), request.param())
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            answer = asyncio.create_task(reader.read())
            begun = time.monotonic()
            try:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause_s)
                done = await asyncio.wait_for(answer, 20)
            except (ConnectionResetError, BrokenPipeError):
                done = b""
            writer.close()
            server.should_exit = True
            await serving
            return done, time.monotonic() - begun

    return lambda *pieces, pause_s=0.0: asyncio.run(run(pieces, pause_s))


def test_requests_of_one_connection_are_answered_in_order(talk):
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 200000\r\n\r\n"
    last = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    found, _ = talk(GET, head + b"x" * 200_000, last, pause_s=0.05)
    assert [part.partition(b"\r\n\r\n")[2] for part in found.split(b"HTTP/1.1 200 OK")[1:]] == [
        b"0",
        b"200000",
        b"0",
    ]
    assert b"server:" not in found.lower()


def test_what_is_no_http_gets_the_shape_of_all_errors(talk):
    head, _, body = talk(b"NO SUCH THING\r\n\r\n")[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"x-request-id: " in head
    assert json.loads(body)["error"]["code"] == "invalid_value"


def test_a_head_that_is_too_long_gets_no_answer_but_an_error(talk):
    pieces = [b"GET / HTTP/1.1\r\nhost: localhost\r\nx: "] + [b"a" * 8192] * 40
    assert MAX_HEAD_BYTES < 8192 * 40
    found, seconds = talk(*pieces, pause_s=0.001)
    assert (b"200 OK" in found, seconds < HEAD_S / 2) == (False, True)


@pytest.mark.parametrize("pieces", [[b""], [GET[:10]], [GET, GET[:10]]])
def test_a_head_that_does_not_come_ends_the_connection(talk, monkeypatch, pieces):
    monkeypatch.setattr(http_server, "HEAD_S", 0.3)
    found, seconds = talk(*pieces, pause_s=0.1)
    assert found.count(b"200 OK") == pieces.count(GET)
    assert 0.3 <= seconds < 0.3 * 5 + 2


def test_a_connection_without_a_request_stays_open_for_the_next(talk, monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_S", 0.1)
    last = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert talk(GET, last, pause_s=0.5)[0].count(b"200 OK") == 2
