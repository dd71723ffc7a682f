"""Real servers: ``mstar-core serve`` as a person runs it, and proof that nothing of it is left."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from attrs import define, field

READY_S = 60
"""A start takes some 3 s; five times that, and a loaded machine."""


@define
class Answer:
    """A response that was read whole."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@define
class Server:
    """One ``mstar-core serve``."""

    process: subprocess.Popen
    log_path: Path
    shm_before: frozenset
    address: str | None = None
    begun: float = field(factory=time.monotonic)
    """When it was started."""
    start_s: float | None = None
    """Until ``/ready`` was first seen to say 200."""
    read_from: int = 0
    """Where :attr:`news` begins in the log."""
    seen: set = field(factory=set)
    """Every process that was ever seen of it."""

    @property
    def log(self):
        """All that it wrote to stderr."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def news(self):
        """What was written since :meth:`mark`."""
        return self.log[self.read_from :]

    def mark(self):
        """From here on the log is news."""
        self.read_from = len(self.log)
        return self

    @property
    def port(self):
        return int(self.address.rpartition(":")[2])

    def pids(self, role):
        """Processes that were started as ``engine`` or ``API process 0``, in order."""
        return [int(pid) for pid in re.findall(rf"{role} is process (\d+)", self.log)]

    @property
    def engine(self):
        """The engine's process now."""
        return self.pids("engine")[-1]

    def api(self, index=0):
        """An API process now."""
        return self.pids(f"API process {index}")[-1]

    def until(self, what, timeout_s=READY_S, every_s=0.02):
        """Wait until ``what()`` is true, and return it. Fails with the log."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if found := what():
                return found
            time.sleep(every_s)
        pytest.fail(f"not within {timeout_s} s: {what.__doc__ or what}\n{self.log[-4000:]}")

    def bound(self, timeout_s=READY_S):
        """Wait for the address."""

        def listening():
            """the server listens"""
            found = re.search(r"^listening on (\S+)$", self.log, re.MULTILINE)
            return found and found[1]

        self.address = self.until(listening, timeout_s)
        return self

    def ready(self, timeout_s=READY_S):
        """Wait until ``/ready`` says 200."""

        def is_ready():
            """/ready is 200"""
            if self.process.poll() is not None:
                pytest.fail(f"ended with {self.process.returncode}\n{self.log[-4000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.get("/ready").status == 200

        self.bound()
        self.until(is_ready, timeout_s)
        self.start_s = self.start_s or time.monotonic() - self.begun
        self.note_pids()
        return self

    def note_pids(self):
        self.seen |= {self.process.pid, *self.pids("engine"), *self.pids(r"API process \d+")}

    def connect(self, timeout_s=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def get(self, path, timeout_s=60, **headers):
        return self.ask("GET", path, None, timeout_s, **headers)

    def post(self, path, body, timeout_s=60, **headers):
        return self.ask("POST", path, json.dumps(body), timeout_s, **headers)

    def ask(self, method, path, body, timeout_s=60, **headers):
        """One request on a connection of its own, read whole."""
        connection = self.connect(timeout_s)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given.setdefault("content-type", "application/json")
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def complete(self, prompt, timeout_s=60, **options):
        """A completion of ``prompt``, whole."""
        body = {"model": "echo", "prompt": prompt, "max_tokens": 4096, **options}
        return self.post("/v1/completions", body, timeout_s)

    def stream(self, prompt, timeout_s=60, **options):
        """A streamed completion: (text, error code or None, whether ``[DONE]`` came)."""
        body = {"model": "echo", "prompt": prompt, "max_tokens": 4096, "stream": True, **options}
        connection = self.connect(timeout_s)
        try:
            head = {"content-type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), head)
            answer = connection.getresponse()
            if answer.status != 200:
                return "", json.loads(answer.read())["error"]["code"], False
            return read_events(answer)
        finally:
            connection.close()

    def metric(self, name):
        """The value of a metric without labels, or the sum over its labels, or over `a|b`."""
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"({name})[ {{]", line))

    def running(self, number):
        """Wait until so many requests to the model are open in the server."""

        def are_open():
            """requests are open"""
            return self.metric("mstar_requests_open") >= number

        self.until(are_open)

    def replaced(self, role, before):
        """Wait until another process is there, and the server is ready."""

        def is_another():
            """another process is there"""
            return self.pids(role)[-1] != before

        self.until(is_another)
        return self.ready()

    def signal(self, number):
        self.process.send_signal(number)

    def ended(self, timeout_s=30):
        """Wait for the end; the exit code."""
        self.note_pids()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"does not end within {timeout_s} s\n{self.log[-4000:]}")

    def check_gone(self):
        """Nothing of the server is left: no process, no port, no shared memory with a name."""
        self.note_pids()

        def are_gone():
            """every process is gone, those that init has to collect too"""
            return not any({pid, group} & self.seen for pid, group in groups().items())

        self.until(are_gone, 10)
        assert shm() <= self.shm_before
        if self.address and not self.address.startswith("unix:"):
            with pytest.raises(ConnectionRefusedError):
                self.get("/live", timeout_s=2)

    def stop(self):
        """End it however it is, and check that nothing is left."""
        if self.process.poll() is None:
            self.note_pids()
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
            self.process.send_signal(signal.SIGTERM)
        self.ended()
        self.check_gone()


class Calls:
    """Calls in threads of their own: when each was over, and its result."""

    def __init__(self):
        self.results, self.threads = [], []

    def begin(self, call, *arguments, **options):
        def run():
            try:
                found = call(*arguments, **options)
            except (OSError, http.client.HTTPException) as error:
                found = error
            self.results.append((time.monotonic(), found))

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def all(self, timeout_s=60):
        for thread in self.threads:
            thread.join(timeout_s)
            assert not thread.is_alive()
        return self.results


def read_events(answer):
    """Of a stream of completions: (text, error code or None, whether ``[DONE]`` came)."""
    text, code, done = "", None, False
    while line := answer.readline():
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if data == b"[DONE]":
            done = True
            continue
        event = json.loads(data)
        if "error" in event:
            code = event["error"]["code"]
        else:
            text += "".join(choice["text"] for choice in event["choices"])
    return text, code, done


def is_alive(pid):
    """Whether a process runs, or is a zombie that nobody collected."""
    return Path(f"/proc/{pid}").exists()


def groups():
    """Process → its group, of all there are, zombies too. What a child starts is in its group."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[2])
    return found


def shm():
    return frozenset(os.listdir("/dev/shm"))


def start(tmp_path, *arguments, config="echo", port="0"):
    """Start a server; nothing is waited for."""
    begun = time.monotonic()
    log_path = tmp_path / f"server-{time.monotonic_ns()}.log"
    place = ["--port", port] if port is not None else []
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mstar_core", "serve", config, *place, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return Server(process, log_path, shm(), begun=begun)


@pytest.fixture
def serve(tmp_path):
    """``serve(*arguments)``: a server of its own for one test, not waited for."""
    started = []

    def make(*arguments, **options):
        started.append(start(tmp_path, *arguments, **options))
        return started[-1]

    yield make
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A ready server of echo for all tests that leave it as it was."""
    made = start(tmp_path_factory.mktemp("server"))
    made.ready()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def tough(tmp_path_factory):
    """A server that takes faults, is quick to notice a hang, and may be hurt any number of times.

    Each test finds it ready, and only its own news.
    """
    hurt = ("--set", "server.max_restarts=1000", "--set", "server.stall_s=2")
    made = start(tmp_path_factory.mktemp("tough"), *FAULTS, *hurt)
    made.ready()
    yield made
    made.stop()


@pytest.fixture
def calls():
    made = Calls()
    yield made
    made.all()


@pytest.fixture(scope="session")
def tiny_server(tmp_path_factory):
    """A ready server of the tiny Qwen3.5 checkpoint, for tests that leave it as it was."""
    made = start(tmp_path_factory.mktemp("tiny"), config="qwen35_tiny")
    made.ready()
    yield made
    made.stop()


FAULTS = ("--set", "model.options.faults=true")
"""Arguments with which prompts may order faults."""


@pytest.fixture(scope="session")
def faults():
    return FAULTS
