"""Streams end with their client, with their time, or as they should, and leave nothing running."""

import asyncio

import pytest
from starlette.responses import Response

from mstar_core.model.front import Request
from mstar_core.serving.errors import ApiError
from mstar_core.serving.link import Arrived
from mstar_core.serving.routes import Route
from mstar_core.serving.streaming import Stream, attended, submitted
from mstar_core.testing.asgi import call
from mstar_core.testing.scripted_link import ScriptedLink, said


def forever(_):
    while True:
        yield Arrived(tokens=[1])
        yield 0.001


async def tokens(exchange, write):
    """Write a line per token until the end of the generation."""
    with submitted(exchange, Request(arrays={})) as generation:
        while True:
            arrived = await generation.arrived()
            for token in arrived.tokens:
                write(f"{token}\n".encode())
            if arrived.ended is not None:
                return


async def streamed(exchange):
    stream = Stream(exchange)
    return await stream.begin(tokens(exchange, stream.write))


async def collected(exchange):
    lines = []
    await attended(exchange, tokens(exchange, lines.append))
    return Response(b"".join(lines))


ROUTES = [
    Route(method="POST", path=path, handler=handler, summary="A test's", capability="text")
    for path, handler in (("/streamed", streamed), ("/collected", collected))
]


@pytest.fixture
def served(rig):
    def make(script, **options):
        return rig(routes=ROUTES, link=ScriptedLink(script), **options)

    return make


@pytest.mark.parametrize("path", ["/streamed", "/collected"])
def test_all_that_was_written_arrives_and_nothing_is_aborted(served, path):
    made = served(lambda _: said([1, 2], [3]))
    told = made.ask(path, b"{}")
    assert (told.status, told.body, told.is_complete) == (200, b"1\n2\n3\n", True)
    assert [g.was_aborted for g in made.service.link.generations] == [False]


@pytest.mark.parametrize("path", ["/streamed", "/collected"])
def test_a_client_that_leaves_ends_its_generation(served, path):
    made = served(forever)

    async def run():
        told = await call(made.app, path, b"{}", leaves=True)
        assert len(asyncio.all_tasks()) == 1
        return told

    asyncio.run(run())
    assert [g.was_aborted for g in made.service.link.generations] == [True]


@pytest.mark.parametrize("path", ["/streamed", "/collected"])
def test_a_request_that_takes_too_long_is_told_so_and_its_generation_ends(served, path):
    made = served(forever, limits={"request_timeout_s": 0.1})
    told = made.ask(path, b"{}")
    assert b'"code":"request_timeout"' in told.body
    assert told.status == (200 if path == "/streamed" else 408)
    assert [g.was_aborted for g in made.service.link.generations] == [True]


def test_silence_is_broken_by_a_comment(served):
    made = served(lambda _: [0.25, *said([1])], server={"keep_alive_s": 0.05})
    body = made.ask("/streamed", b"{}").body
    assert body.startswith(b": keep-alive\n\n")
    assert body.endswith(b"1\n")
    assert 2 <= body.count(b": keep-alive\n\n") <= 5


def sender(taken, pause):
    """An ASGI send that takes ``taken`` bodies and then waits ``pause`` seconds for each."""
    sent = []

    async def send(message):
        sent.append(message)
        if len(sent) > taken + 1:
            await asyncio.sleep(pause)

    return sent, send


async def talk(app, send):
    body = [{"type": "http.request", "body": b"{}", "more_body": False}]
    never = asyncio.Event()

    async def receive():
        if body:
            return body.pop()
        await never.wait()

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/streamed", "headers": headers}
    async with asyncio.timeout(10):
        await app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    "limits", [{"max_unread_bytes": 4096, "unread_timeout_s": 60.0}, {"unread_timeout_s": 0.2}]
)
def test_a_client_that_does_not_read_is_cut_off(served, caplog, limits):
    """In bytes, and in time: the connection is left unfinished, and the generation ended."""

    def fast(_):
        while True:
            yield Arrived(tokens=range(100))
            yield 0.001

    made = served(fast, limits=limits)
    sent, send = sender(1, 3600)
    caplog.set_level("INFO")
    asyncio.run(talk(made.app, send))
    assert sent[-1]["more_body"] is True
    assert [g.was_aborted for g in made.service.link.generations] == [True]
    assert "outcome=client_too_slow" in caplog.text


def test_what_comes_while_the_client_reads_is_sent_together(served):
    made = served(lambda _: [*[Arrived(tokens=[i]) for i in range(50)], *said([50])])
    sent, send = sender(0, 0.05)
    asyncio.run(talk(made.app, send))
    bodies = [m["body"] for m in sent[1:] if m["body"]]
    assert b"".join(bodies) == b"".join(b"%d\n" % i for i in range(51))
    assert len(bodies) < 5


async def failing(exchange):
    async def work():
        raise ApiError("draining", "no")

    return await Stream(exchange).begin(work())


def test_work_that_fails_before_its_first_bytes_has_its_own_status(rig):
    routes = [Route(method="POST", path="/fail", handler=failing, summary="A test's")]
    assert rig(routes=routes).ask("/fail", b"{}").status == 503
