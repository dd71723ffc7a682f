"""The end: told to stop, the server takes nothing new and finishes what is open; then it goes."""

import os
import signal
import time

import pytest

SLOW = "!delay=0.001 "
"""A step takes a millisecond for each of its rows."""


def streams(server, calls, number, text):
    """Open so many streams of ``text``, and wait until all are under way."""
    for _ in range(number):
        calls.begin(server.stream, text)
    server.running(number)


def is_draining(server):
    """/ready says so"""
    return server.get("/ready").status == 503


def test_fifty_streams_end_whole_and_nothing_new_is_taken(serve, faults, calls):
    server = serve(*faults).ready()
    text = SLOW + "word " * 20
    streams(server, calls, 50, text)
    server.signal(signal.SIGTERM)
    server.until(lambda: is_draining(server))
    ready, live, new = server.get("/ready"), server.get("/live"), server.complete("new")
    assert (ready.json["phase"], ready.json["error"]["code"]) == ("draining", "draining")
    assert live.status == 200
    assert (new.status, new.json["error"]["code"]) == (503, "draining")
    assert [found for _, found in calls.all()] == [(text, None, True)] * 50
    assert server.ended() == 0
    server.check_gone()


def test_what_does_not_end_in_time_gets_an_error_event(serve, faults, calls):
    server = serve(*faults, "--drain", "1").ready()
    for _ in range(3):
        calls.begin(server.stream, "!delay=0.1 " + "x" * 3000)
        calls.begin(server.complete, "!delay=0.1 " + "x" * 3000)
    server.running(6)
    told = time.monotonic()
    server.signal(signal.SIGTERM)
    for _, found in calls.all():
        if isinstance(found, tuple):
            assert found[1:] == ("draining", False)
        else:
            assert (found.status, found.json["error"]["code"]) == (503, "draining")
    assert server.ended() == 0
    assert time.monotonic() - told < 1 + 2 * 5
    assert "6 requests did not end in time" in server.log


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_ends_it_at_once(serve, faults, calls, number, code):
    server = serve(*faults).ready()
    streams(server, calls, 2, "!delay=0.1 " + "x" * 3000)
    server.signal(number)
    server.until(lambda: is_draining(server))
    told = time.monotonic()
    server.signal(number)
    assert server.ended() == code
    assert time.monotonic() - told < 5
    server.check_gone()


def test_an_idle_server_ends_at_once_and_takes_the_name_of_its_socket_with_it(serve, tmp_path):
    path = tmp_path / "sock"
    server = serve("--uds", str(path), port=None)
    server.bound()
    server.until(lambda: "ready     unix:" in server.log)
    assert path.is_socket()
    told = time.monotonic()
    server.signal(signal.SIGINT)
    assert server.ended() == 0
    assert time.monotonic() - told < 5
    assert not path.exists()


def test_an_engine_that_dies_while_the_server_drains_ends_the_streams_and_the_server(
    serve, faults, calls
):
    server = serve(*faults).ready()
    streams(server, calls, 2, "!delay=0.1 " + "x" * 3000)
    server.signal(signal.SIGTERM)
    server.until(lambda: is_draining(server))
    os.kill(server.engine, signal.SIGKILL)
    assert {found[1:] for _, found in calls.all()} == {("engine_restarted", False)}
    assert server.ended() == 0
    assert len(server.pids("engine")) == 1
