"""Everything at once, in three phases: as usual, over the limits, and afterwards as if nothing had
been. Faults are ordered by prompts (``docs/echo.md``).
"""

import json
import os
import random
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

PLACES = 16
USUAL = [
    ("hello {n}", None),
    ("!delay=0.002 hello {n}", None),
    ("!raise@3 hello {n}", "request_failed"),
    ("!nan@2 hello {n}", "request_failed"),
    ("!oom@1 hello {n}", "request_failed"),
    ("!voice@4 hello {n}", "request_failed"),
    ("!front hello {n}", "internal_error"),
    ("a longer one, {n}, " + "x" * 300, None),
]
"""Prompt, and the code that it is answered with; None: with itself."""
OVER = {"overloaded", "not_ready", "engine_restarted", *(code for _, code in USUAL if code)}
"""Codes that may be given while too many come and the engine is killed under them."""


@pytest.fixture(scope="module")
def rough(tmp_path_factory):
    from .conftest import FAULTS, start

    sets = (f"limits.max_open={PLACES}", "server.max_restarts=1000", "server.stall_s=2")
    pairs = [part for one in sets for part in ("--set", one)]
    made = start(tmp_path_factory.mktemp("rough"), *FAULTS, *pairs)
    made.ready()
    yield made
    made.stop()


def play(server, clients, number, seed):
    """Requests of every kind from so many clients: (prompt, code that it orders, what came)."""
    draw = random.Random(seed)
    asked = [draw.choice(USUAL) for _ in range(number)]
    asked = [(prompt.format(n=n), code) for n, (prompt, code) in enumerate(asked)]

    def ask(one):
        prompt, code = one
        how = draw.choice(["stream", "whole"])
        try:
            if how == "stream":
                return prompt, code, *server.stream(prompt)
            answer = server.complete(prompt)
        except OSError as error:
            return prompt, code, "", type(error).__name__, False
        if answer.status == 200:
            return prompt, code, answer.json["choices"][0]["text"], None, True
        return prompt, code, "", answer.json["error"]["code"], False

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(ask, asked))


def check_usual(told):
    """Each got what its own prompt says, whatever its neighbours were."""
    for prompt, ordered, text, code, whole in told:
        assert (code, whole) == (ordered, ordered is None), prompt
        assert prompt.startswith(text) if ordered else text == prompt


def leave(server, number):
    """Clients that ask and go, half of them by reset."""
    for n in range(number):
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            body = json.dumps({"prompt": "!delay=0.01 " + "x" * 500, "stream": True}).encode()
            head = (
                f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}"
            )
            gone.sendall(head.encode() + b"\r\ncontent-type: application/json\r\n\r\n" + body)
            if n % 2:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def kill_when_busy(server):
    server.running(PLACES // 2)
    os.kill(server.engine, signal.SIGKILL)


def test_faults_overload_and_a_killed_engine_leave_a_server_that_is_as_it_was(rough):
    engine, api = rough.engine, rough.api()
    check_usual(play(rough, 8, 64, seed=1))
    assert (rough.engine, rough.api()) == (engine, api)

    with ThreadPoolExecutor(2) as beside:
        leaving = beside.submit(leave, rough, 12)
        killed = beside.submit(kill_when_busy, rough)
        over = play(rough, PLACES * 4, 512, seed=2)
        leaving.result()
        killed.result()
    codes = {code for *_, code, _ in over}
    assert codes <= {*OVER, None}
    assert "overloaded" in codes
    assert codes & {"engine_restarted", "not_ready"}
    for prompt, _, text, code, whole in over:
        assert text == prompt if code is None else not whole

    rough.replaced("engine", engine)

    def is_empty():
        """nothing is open, and nothing is held, as the engine's next sign of life says"""
        return rough.metric("mstar_requests_open|mstar_resource_usage_ratio") == 0

    rough.until(is_empty)
    check_usual(play(rough, 8, 64, seed=3))
    rough.until(is_empty)
    assert rough.api() == api
