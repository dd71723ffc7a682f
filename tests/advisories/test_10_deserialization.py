"""Family 10: bytes from elsewhere that become code, and sockets that anybody can reach.

CVE-2025-32444, CVE-2025-30165, CVE-2026-3059, CVE-2026-14890, CVE-2026-93034, CVE-2026-93088,
CVE-2026-86793, CVE-2026-15969, CVE-2025-66455.
"""

import ast
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
LISTENERS = {"zmq", "xmlrpc", "socketserver", "rpyc", "Pyro5"}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "numpy.load",
    "np.load",
}
LISTENING = "0A"
TABLES = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
START_S = 60


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_nothing_shipped_imports_what_turns_bytes_into_code(shipped):
    forbidden = MODULES | LISTENERS
    found = [
        f"{path}:{line} {name}"
        for path, tree in shipped.items()
        for line, name in imported(tree)
        if name.partition(".")[0] in forbidden or "multiprocessing" in name
    ]
    assert found == []


def test_nothing_shipped_calls_what_turns_bytes_into_code(shipped):
    found = [
        f"{path}:{node.lineno} {ast.unparse(node.func)}"
        for path, tree in shipped.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS
    ]
    assert found == []


def test_yaml_is_read_by_a_safe_loader_alone(shipped):
    loaders = {
        f"{path}: {ast.unparse(node)}"
        for path, tree in shipped.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.fullmatch(r"yaml\.\w*Loader", ast.unparse(node))
    }
    assert all("SafeLoader" in loader for loader in loaders), loaders


def test_only_the_codec_knows_the_codec_library(shipped):
    users = {p for p, tree in shipped.items() for _, name in imported(tree) if "msgspec" in name}
    assert {user for user in users if user.startswith("mstar_core/serving")} <= {
        "mstar_core/serving/codec.py"
    }


def family(pid):
    """A process and all that descend from it."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, line = [], [pid]
    while line:
        found.append(line.pop())
        line += parents.get(found[-1], [])
    return found


def sockets_of(pids):
    """Inode numbers of every socket that the processes hold."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry)):
                        found.add(match[1])
    return found


def reachable(pids):
    """(table, address, port) of every socket of the processes that others could talk to."""
    own, found = sockets_of(pids), []
    for table in TABLES:
        path = Path(f"/proc/net/{table}")
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            listens = fields[3] == LISTENING or not table.startswith("tcp")
            if listens and fields[9] in own:
                address, _, port = fields[1].rpartition(":")
                found.append((table, address, int(port, 16)))
    return found


def named_unix_sockets(pids):
    own = sockets_of(pids)
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return [row[7] for row in rows if len(row) > 7 and row[6] in own]


@pytest.fixture
def server(tmp_path):
    """A served echo: (pid, port)."""
    log_path = tmp_path / "log"
    command = [sys.executable, "-m", "mstar_core", "serve", "echo", "--port", "0"]
    with log_path.open("wb") as log:
        process = subprocess.Popen([*command, "--processes", "2"], stdout=log, stderr=log)
    end = time.monotonic() + START_S
    try:
        port = None
        while time.monotonic() < end and process.poll() is None:
            found = re.search(r"^listening on \S+:(\d+)$", log_path.read_text(), re.MULTILINE)
            if found and is_ready(int(found[1])):
                port = int(found[1])
                break
            time.sleep(0.05)
        assert port is not None, log_path.read_text()[-4000:]
        yield process.pid, port
    finally:
        for _ in range(2):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        process.wait(START_S)


def is_ready(port):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return asked(port, "GET", "/ready") == 200
    return False


def asked(port, method, path, body=None):
    """The status of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"content-type": "application/json"})
        with connection.getresponse() as answer:
            return answer.status


def test_a_running_server_listens_on_its_http_port_and_nowhere_else(server):
    pid, port = server
    pids = family(pid)
    assert len(pids) >= 4  # the supervisor, the engine, two API processes
    assert {(address, number) for _, address, number in reachable(pids)} == {("0100007F", port)}
    assert named_unix_sockets(pids) == []
    body = json.dumps({"prompt": "heard", "max_tokens": 8})
    assert asked(port, "POST", "/v1/completions", body) == 200
    assert {number for _, _, number in reachable(family(pid))} == {port}
