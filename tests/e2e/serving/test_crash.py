"""Processes that die, hang or stall: what clients see of it, and how the server comes back."""

import os
import re
import signal
import threading
import time

import pytest

FAST = ("--set", "server.max_restarts=1000")


class Calls:
    """Calls in threads of their own: their results, and when each was there."""

    def __init__(self):
        self.results, self.threads = [], []

    def begin(self, call, *arguments, **options):
        def run():
            try:
                found = call(*arguments, **options)
            except OSError as error:
                found = error
            self.results.append((time.monotonic(), found))

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def all(self, timeout_s=60):
        for thread in self.threads:
            thread.join(timeout_s)
            assert not thread.is_alive()
        return self.results


def running(server, number):
    """Wait until so many requests are open in the server."""

    def are_open():
        """requests are open"""
        found = re.search(
            r"^mstar_requests_open (\S+)$", server.get("/metrics").body.decode(), re.M
        )
        return float(found[1]) >= number

    server.until(are_open)


def test_a_killed_engine_ends_what_is_open_and_comes_back(serve, faults):
    server = serve(*faults).ready()
    calls = Calls()
    for _ in range(4):
        calls.begin(server.stream, "!delay=0.05 " + "x" * 2000)
        calls.begin(server.complete, "!delay=0.05 " + "x" * 2000)
    running(server, 8)
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
    assert "engine ended: SIGKILL" in server.log
    assert "mstar_engine_restarts_total 1.0" in server.get("/metrics").body.decode()


def test_a_killed_api_process_leaves_the_engine_as_it_was(serve, faults):
    server = serve(*faults).ready()
    calls = Calls()
    calls.begin(server.stream, "!delay=0.05 " + "x" * 2000)
    running(server, 1)
    before, engine = server.api(), server.engine
    os.kill(before, signal.SIGKILL)
    ((_, found),) = calls.all()
    assert isinstance(found, OSError) or found[1:] == (None, False)  # its socket went with it
    server.ready()
    assert (server.api() != before, server.engine == engine) == (True, True)
    assert server.complete("again").json["choices"][0]["text"] == "again"

    def engine_is_empty():
        """the engine dropped the request of the process that is gone"""
        return "mstar_requests_running 0.0" in server.get("/metrics").body.decode()

    server.until(engine_is_empty)


@pytest.mark.parametrize(
    ("order", "how"), [("!exit@2 abcdef", "exit code 70"), ("!segv@2 abcdef", "SIGSEGV")]
)
def test_an_engine_that_dies_of_a_request_comes_back_for_the_next(serve, faults, order, how):
    server = serve(*faults).ready()
    text, code, done = server.stream(order)
    assert (text, code, done) in [(order[:n], "engine_restarted", False) for n in range(3)]
    server.ready()
    assert f"engine ended: {how}" in server.log
    assert server.complete("next").json["choices"][0]["text"] == "next"


def test_a_hung_engine_writes_its_stacks_and_is_started_again(serve, faults):
    server = serve(*faults, "--set", "server.stall_s=1").ready()
    begun = time.monotonic()
    calls = Calls()
    calls.begin(server.complete, "!hang@1 abc")
    phases = set()

    def is_back():
        """the server noticed, and is ready again"""
        answer = server.get("/ready")
        phases.add(answer.json["phase"])
        return answer.status == 200 and len(server.pids("engine")) == 2

    server.until(is_back)
    ((when, found),) = calls.all()
    assert (found.status, found.json["error"]["code"]) == (503, "engine_restarted")
    assert when - begun < (1 + 2 + 2) * 5
    assert "engine has made no progress for" in server.log
    assert "Fatal Python error: Aborted" in server.log
    assert re.search(r'File ".*echo/faults.py", line \d+ in strike', server.log)
    assert phases & {"stalled", "restarting"}
    assert server.complete("next").json["choices"][0]["text"] == "next"


@pytest.mark.parametrize("role", ["engine", "API process 0"])
def test_a_process_that_is_silent_is_started_again(serve, role):
    server = serve("--set", "server.stall_s=1").ready()
    (before,) = server.pids(role)
    os.kill(before, signal.SIGSTOP)

    def is_replaced():
        """another process is there"""
        return len(server.pids(role)) == 2

    server.until(is_replaced)
    server.ready()
    assert f"{role} has not been heard of for" in server.log
    assert server.complete("next").json["choices"][0]["text"] == "next"


def test_an_engine_that_ends_too_often_ends_the_server(serve):
    server = serve("--set", "server.max_restarts=1").ready()
    os.kill(server.engine, signal.SIGKILL)
    server.until(lambda: len(server.pids("engine")) == 2)
    server.ready()
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


def test_with_two_api_processes_each_answers_and_metrics_are_of_both(serve):
    server = serve("--processes", "2").ready()
    assert len({server.api(0), server.api(1)}) == 2
    calls = Calls()
    for number in range(40):
        calls.begin(server.complete, f"number {number}")
    texts = sorted(found.json["choices"][0]["text"] for _, found in calls.all())
    assert texts == sorted(f"number {number}" for number in range(40))
    pattern = r'^mstar_requests_total\{outcome="stop",route="/v1/completions"\} (\S+)$'

    def counted():
        body = server.get("/metrics").body.decode()
        return sum(float(one) for one in re.findall(pattern, body, re.M))

    assert {counted() for _ in range(8)} == {40.0}
    os.kill(server.api(1), signal.SIGKILL)
    server.until(lambda: len(server.pids("API process 1")) == 2)
    assert all(server.complete("still").status == 200 for _ in range(10))
