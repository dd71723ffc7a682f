"""What the server adds to a request, over a bare ASGI application that gives the same bytes.

    python tools/bench_overhead.py --requests 1000 --rounds 5 --json run.json

It starts `mstar-core serve echo` and the bare one. Both run under the same HTTP server library with
the same event loop and parser, each in a process of its own, and are asked in turns by one client
that keeps its connections: some requests in a row to each (``--run``), in the order ABCDDCBA, so
that what else the machine does meets all alike. With ``--run 1`` every process is found cold, since
the three others have used the caches meanwhile. The arms:

    bare        reads the body, and sends the bytes that `completion` was answered with
    tokenize    a JSON body in, ids out: gates, codec, front, log line and metrics, and no engine
    completion  a completion of one token: the same, and there and back to the engine process
    engine      that request in an engine inside the client's process, without any HTTP

Printed per arm: the median of each round, the median of those and their least and greatest, and the
difference to `bare`; and of `completion` what its own `timings` say, medians. What the server adds
to an engine is `completion` less `bare` less `engine`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from mstar_core.bench.machine import described
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.engine.events import EngineEvent, FinishEvent

PROMPT = "The quick brown fox jumps over the lazy dog."
ASKED = {"model": "echo", "prompt": PROMPT, "max_tokens": 1, "temperature": 0}
READY = b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
PARTS = ("prepare_ms", "queue_ms", "prefill_ms", "decode_ms", "total_ms")


def request(path: str, body: dict[str, object]) -> bytes:
    """A request as bytes."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(data) + data


class InProcess:
    """The engine alone: a request, and the wait for its last event."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._over: SimpleQueue[None] = SimpleQueue()

    def ask(self, asked: bytes) -> tuple[float, bytes]:
        """Milliseconds from the request as it was typed to its finish, and nothing."""
        began = time.perf_counter()
        options = {"max_new_tokens": 1, "sampling": SamplingSettings(temperature=0)}
        request = self._engine.front.text_request(asked.decode(), **options)
        self._engine.submit(request, self._hear)
        self._over.get()
        return (time.perf_counter() - began) * 1e3, b""

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, FinishEvent):
            self._over.put(None)


class Connection:
    """One kept connection; nothing but sockets, so that it costs little and always the same."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, asked: bytes) -> tuple[float, bytes]:
        """Milliseconds from the first byte sent to the last received, and the body."""
        began = time.perf_counter()
        self._socket.sendall(asked)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
        while len(body) < length:
            body += self._more()
        took_ms = (time.perf_counter() - began) * 1e3
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise SystemExit(f"not answered: {head!r} {body!r}")
        return took_ms, body

    def _more(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise SystemExit("a server closed its connection")
        return data


def serve_bare(fd: int, answer: bytes) -> None:
    """The bare application, on the socket ``fd``."""
    import asyncio

    import uvicorn
    from starlette.types import Receive, Scope, Send

    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer)).encode()),
    ]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    config = uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off")
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve([socket.socket(fileno=fd)]))


@contextmanager
def bare_server(answer: bytes) -> Iterator[int]:
    """Its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fd = listening.fileno()
        command = [sys.executable, __file__, "--bare", str(fd)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[fd])
        process.stdin.write(answer)
        process.stdin.close()
        try:
            yield listening.getsockname()[1]
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def our_server(*sets: str) -> Iterator[tuple[int, Path]]:
    """The port of a ready ``mstar-core serve echo``, and its log."""
    log = Path(tempfile.mkstemp(prefix="overhead-", suffix=".log")[1])
    command = [sys.executable, "-m", "mstar_core", "serve", "echo", "--port", "0"]
    command += [part for one in sets for part in ("--set", one)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, stdin=subprocess.DEVNULL)
    try:
        yield _ready(process, log), log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        log.unlink()


def _ready(process: subprocess.Popen, log: Path) -> int:
    while process.poll() is None:
        found = re.search(r"^listening on http://127.0.0.1:(\d+)$", log.read_text(), re.MULTILINE)
        if found:
            with socket.create_connection(("127.0.0.1", int(found[1]))) as asking:
                asking.sendall(
                    b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
                )
                if b" 200 " in asking.recv(64):
                    return int(found[1])
        time.sleep(0.1)
    raise SystemExit(log.read_text())


def measure(
    arms: dict[str, tuple[Connection | InProcess, bytes]], requests: int, run: int
) -> dict[str, list[float]]:
    """Milliseconds of each request of each arm, in turns of ``run`` requests."""
    took = {name: [] for name in arms}
    there = list(arms)
    for turn in range(requests // run):
        for name in there if turn % 2 == 0 else reversed(there):
            connection, asked = arms[name]
            took[name] += [connection.ask(asked)[0] for _ in range(run)]
    return took


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000, help="of each arm and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", type=int, default=50, help="requests in a row to one arm")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare is not None:
        serve_bare(args.bare, sys.stdin.buffer.read())
        return
    with ExitStack() as stack:
        port, _ = stack.enter_context(our_server())
        completion = request("/v1/completions", ASKED)
        _, answer = Connection(port).ask(completion)
        bare = stack.enter_context(bare_server(answer))
        arms = {
            "bare": (Connection(bare), completion),
            "tokenize": (Connection(port), request("/tokenize", {"prompt": PROMPT})),
            "completion": (Connection(port), completion),
            "engine": (InProcess(stack.enter_context(Engine.open("echo"))), PROMPT.encode()),
        }
        measure(arms, 200, args.run)
        before = os.getloadavg()[0]
        rounds = [measure(arms, args.requests, args.run) for _ in range(args.rounds)]
        timed = request("/v1/completions", {**ASKED, "timings": True})
        told = [json.loads(arms["completion"][0].ask(timed)[1])["timings"] for _ in range(500)]
    medians = {name: [statistics.median(one[name]) for one in rounds] for name in arms}
    found = {
        "machine": described(shlex.join(["python", *sys.argv])),
        "load": [before, os.getloadavg()[0]],
        "medians_ms": medians,
        "p99_ms": {
            name: statistics.median(statistics.quantiles(one[name], n=100)[98] for one in rounds)
            for name in arms
        },
        "above_bare_ms": {
            name: [a - b for a, b in zip(medians[name], medians["bare"], strict=True)]
            for name in arms
        },
        "timings_ms": {part: statistics.median(each[part] for each in told) for part in PARTS},
    }
    tell(found)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1))


def tell(found: dict) -> None:
    """For a person."""
    for name, value in found["machine"].items():
        print(f"{name:11}{value}")
    print("load       {:.1f} to {:.1f}".format(*found["load"]))
    print(f"\n{'ms':12}{'median':>8}{'least':>8}{'greatest':>9}{'p99':>8}{'above bare':>12}")
    for name, medians in found["medians_ms"].items():
        above = statistics.median(found["above_bare_ms"][name])
        each = (statistics.median(medians), min(medians), max(medians))
        print("{:12}{:8.3f}{:8.3f}{:9.3f}".format(name, *each), end="")
        print(f"{found['p99_ms'][name]:8.2f}{above:12.3f}")
    parts = ", ".join(f"{name[:-3]} {ms:.3f}" for name, ms in found["timings_ms"].items())
    print(f"\ncompletion, as it tells itself, ms: {parts}")


if __name__ == "__main__":
    main()
