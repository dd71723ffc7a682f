"""Processes that die, hang or stall: what clients see of it, and how the server comes back."""

import os
import re
import signal
import time

import pytest


@pytest.fixture
def server(tough):
    return tough.ready().mark()


def test_a_killed_engine_ends_what_is_open_and_comes_back(server, calls):
    restarts = server.metric("mstar_engine_restarts_total")
    for _ in range(4):
        calls.begin(server.stream, "!delay=0.05 " + "x" * 2000)
        calls.begin(server.complete, "!delay=0.05 " + "x" * 2000)
    server.running(8)
    time.sleep(0.3)
    before, api = server.engine, server.api()
    killed = time.monotonic()
    os.kill(before, signal.SIGKILL)
    for when, found in calls.all():
        assert when - killed < 2 * 5
        if isinstance(found, tuple):
            text, code, done = found
            assert ("!delay=0.05 xx".startswith(text[:14]), code, done) == (
                True,
                "engine_restarted",
                False,
            )
        else:
            assert (found.status, found.json["error"]["code"]) == (503, "engine_restarted")
    answer = server.get("/ready")
    assert (answer.status, server.get("/live").status) == (503, 200)
    assert answer.json["phase"] != "ready"
    server.ready(timeout_s=5 * 5)
    assert (server.engine != before, server.api() == api) == (True, True)
    assert server.complete("again").json["choices"][0]["text"] == "again"
    assert "engine ended: SIGKILL" in server.news
    assert server.metric("mstar_engine_restarts_total") == restarts + 1


def test_a_killed_api_process_leaves_the_engine_as_it_was(server, calls):
    calls.begin(server.stream, "!delay=0.05 " + "x" * 2000)
    server.running(1)
    before, engine = server.api(), server.engine
    os.kill(before, signal.SIGKILL)
    ((_, found),) = calls.all()
    assert isinstance(found, OSError) or found[1:] == (None, False)  # its socket went with it
    server.replaced("API process 0", before)
    assert server.engine == engine
    assert server.complete("again").json["choices"][0]["text"] == "again"

    def engine_is_empty():
        """the engine dropped the request of the process that is gone"""
        return server.metric("mstar_requests_running") == 0

    server.until(engine_is_empty)


@pytest.mark.parametrize(
    ("order", "how"), [("!exit@2 abcdef", "exit code 70"), ("!segv@2 abcdef", "SIGSEGV")]
)
def test_an_engine_that_dies_of_a_request_comes_back_for_the_next(server, order, how):
    before = server.engine
    text, code, done = server.stream(order)
    assert (text, code, done) in [(order[:n], "engine_restarted", False) for n in range(3)]
    server.replaced("engine", before)
    assert f"engine ended: {how}" in server.news
    assert server.complete("next").json["choices"][0]["text"] == "next"


def test_a_hung_engine_writes_its_stacks_and_is_started_again(server, calls):
    begun, before = time.monotonic(), server.engine
    calls.begin(server.complete, "!hang@1 abc")
    phases = set()

    def is_back():
        """the server noticed, and is ready again"""
        answer = server.get("/ready")
        phases.add(answer.json["phase"])
        return answer.status == 200 and server.engine != before

    server.until(is_back)
    ((when, found),) = calls.all()
    assert (found.status, found.json["error"]["code"]) == (503, "engine_restarted")
    assert when - begun < (2 + 2 + 2) * 5
    assert "engine has made no progress for" in server.news
    assert "Fatal Python error: Aborted" in server.news
    assert re.search(r'File ".*echo/faults.py", line \d+ in strike', server.news)
    assert phases & {"stalled", "restarting"}
    assert server.complete("next").json["choices"][0]["text"] == "next"


@pytest.mark.parametrize("role", ["engine", "API process 0"])
def test_a_process_that_is_silent_is_started_again(server, role):
    before = server.pids(role)[-1]
    os.kill(before, signal.SIGSTOP)
    server.replaced(role, before)
    assert f"{role} has not been heard of for" in server.news
    assert server.complete("next").json["choices"][0]["text"] == "next"


def test_an_engine_that_ends_too_often_ends_the_server(serve):
    server = serve("--set", "server.max_restarts=1").ready()
    before = server.engine
    os.kill(before, signal.SIGKILL)
    server.replaced("engine", before)
    os.kill(server.engine, signal.SIGKILL)
    assert server.ended() == 3
    assert "engine ended too often: the server ends" in server.log


def test_a_server_whose_supervisor_is_killed_leaves_no_process(serve):
    server = serve("--processes", "2").ready()
    server.note_pids()
    server.signal(signal.SIGKILL)
    server.ended()

    def all_gone():
        """the children noticed"""
        return not any(os.path.exists(f"/proc/{pid}") for pid in server.seen)

    server.until(all_gone, 5 * 5)


def test_a_supervisor_that_is_killed_at_the_start_takes_its_children_along(serve):
    server = serve().bound()

    def are_started():
        """both children are there"""
        return server.pids("engine") and server.pids("API process 0")

    server.until(are_started)
    server.note_pids()
    server.signal(signal.SIGKILL)
    server.ended()

    def all_gone():
        """the children were killed too"""
        return not any(os.path.exists(f"/proc/{pid}") for pid in server.seen)

    server.until(all_gone, 5)


def test_with_two_api_processes_each_answers_and_metrics_are_of_both(serve, calls):
    server = serve("--processes", "2").ready()
    assert len({server.api(0), server.api(1)}) == 2
    for number in range(40):
        calls.begin(server.complete, f"number {number}")
    texts = sorted(found.json["choices"][0]["text"] for _, found in calls.all())
    assert texts == sorted(f"number {number}" for number in range(40))
    counted = {server.metric("mstar_e2e_request_latency_seconds_count") for _ in range(8)}
    assert counted == {40.0}
    before = server.api(1)
    os.kill(before, signal.SIGKILL)
    server.until(lambda: server.api(1) != before)
    assert {server.complete("still").status for _ in range(100)} == {200}  # also while one starts
