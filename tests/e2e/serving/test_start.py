"""A start: the port at once, then the truth about how far it is, and a table that adds up."""

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import Server, shm


def test_the_port_answers_while_the_engine_starts(serve):
    server = serve().bound()
    phases = set()
    live = server.get("/live")
    assert (live.status, live.json) == (200, {"status": "live"})
    while (answer := server.get("/ready")).status == 503:
        body = answer.json
        assert body["error"]["code"] == "not_ready"
        assert set(body) == {"error", "phase", "done", "total", "eta_s"}
        phases.add(body["phase"])
        early = server.complete("early")
        assert early.status in (200, 503)
        if early.status == 503:
            assert early.json["error"]["code"] == "not_ready"
            assert float(early.headers["retry-after"]) >= 1
        time.sleep(0.05)
    assert answer.json["phase"] == "ready"
    assert phases & {"import", "wiring", "weights", "capture", "front", "warm-up"}
    assert server.complete("hello").json["choices"][0]["text"] == "hello"


def test_the_rows_of_the_start_up_table_add_up_to_the_wall_time(server):
    rows = re.findall(r"^  (command|engine|api|other)\s+(.*?)\s+(\d+\.\d\d)$", server.log, re.M)
    total = float(re.search(r"^  total\s+(\d+\.\d\d)$", server.log, re.M)[1])
    assert sum(float(seconds) for _, _, seconds in rows) == pytest.approx(total, abs=0.1)
    others = sum(float(seconds) for who, phase, seconds in rows if "other" in (who, phase))
    assert others <= 0.02 * total + 0.2
    assert total <= server.start_s + 0.05
    named = {(who, phase) for who, phase, _ in rows}
    assert named >= {
        ("command", "python"),
        ("engine", "python"),
        ("engine", "import"),
        ("engine", "plugins"),
        ("engine", "weights"),
        ("engine", "capture"),
        ("api", "warm chat"),
        ("api", "warm text"),
    }


@pytest.mark.parametrize(("path", "status"), [("/live", 200), ("/v1/models", 400)])
def test_a_load_balancer_that_names_no_host_may_ask_for_live_alone(server, path, status):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert int(connection.makefile("rb").readline().split()[1]) == status


def test_the_banner_says_where_the_server_is_and_what_it_serves(server):
    assert f"ready     {server.address}\n" in server.log
    assert "model     echo, context 65536 tokens\n" in server.log
    assert "limits    open requests 512" in server.log
    assert "/v1/completions" in server.log
    assert f"page      {server.address}/\n" in server.log


def test_ready_says_where_the_time_of_the_start_went(server):
    """The table as JSON: its rows add up within 2 % and 50 ms, and little of it has no name."""
    told = server.get("/ready").json["start_up"]
    total = told["total_s"]
    assert sum(row["seconds"] for row in told["rows"]) == pytest.approx(total, rel=0.02, abs=0.05)
    rest = sum(r["seconds"] for r in told["rows"] if "other" in (r["who"], r["phase"]))
    assert rest <= 0.02 * total + 0.05 * 5
    assert [row["who"] for row in told["rows"]][:2] == ["command", "engine"]
    assert {row["phase"] for row in told["meanwhile"]} >= {"python", "front"}


def run(*arguments):
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "mstar_core", "serve", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr, time.monotonic() - begun


def test_a_port_in_use_is_said_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said, _ = run("echo", "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "server.port" in said
    assert "no other program listens on" in said
    assert "is process" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["echo", "--host", "0.0.0.0"], 1, "--api-key-file FILE, or --insecure"),
        (["echo", "--host", "example.invalid", "--insecure"], 1, "an address of this machine"),
        (["echo", "--tls-cert", "a.pem"], 1, "both --tls-cert and --tls-key"),
        (["echo", "--tls-cert", "a.pem", "--tls-key", "b.pem"], 1, "a certificate chain in PEM"),
        (["echo", "--uds", "/nowhere/there/sock"], 1, "server.uds"),
        (["echo", "--uds", "sock", "--port", "80"], 2, "not both"),
        (["echo", "--port", "70000"], 1, "server.port"),
        (["echo", "--processes", "0"], 1, "server.processes"),
        (["echo", "--prot", "80"], 2, "--port"),
        (["ecco"], 1, "echo.yaml"),
        (["echo", "--set", "server.drain=1"], 1, "drain_s"),
    ],
)
def test_what_cannot_be_served_ends_before_anything_starts(arguments, code, words):
    found, said, _ = run(*arguments)
    assert (found, words in said, "is process" in said) == (code, True, False), said


def test_a_child_that_cannot_start_ends_the_server_with_its_own_error(serve):
    begun = time.monotonic()
    server = serve("--set", "model.options.fault=true")
    assert server.ended() == 1
    assert "model.options.fault" in server.log
    assert "faults" in server.log
    assert time.monotonic() - begun < 25


def test_limits_that_a_warm_up_passes_are_no_reason_not_to_start(serve):
    limits = ("--set", "limits.max_prompt_tokens=3", "--set", "limits.max_new_tokens=1")
    server = serve(*limits).ready()
    assert "no warm-up of text: " in server.log
    assert server.complete("yes", max_tokens=1).json["choices"][0]["text"] == "y"


def test_keys_that_cannot_be_read_end_the_server_with_their_own_error(serve, tmp_path):
    server = serve("--api-key-file", str(tmp_path / "none"))
    assert server.ended() == 1
    assert "a file that cannot be read" in server.log


@pytest.mark.parametrize("role", ["engine", "API process 0"])
def test_a_child_that_is_killed_while_it_starts_ends_the_server(serve, role):
    server = serve().bound()
    begun = time.monotonic()
    (pid,) = server.until(lambda: server.pids(role))
    server.note_pids()
    subprocess.run(["kill", "-9", str(pid)], check=True)
    assert server.ended() == 4
    assert time.monotonic() - begun < 25
    assert f"{role} ended while it started: SIGKILL" in server.log


def test_a_server_that_is_told_to_stop_while_it_starts_ends_at_once(serve):
    server = serve().bound()
    server.until(lambda: server.pids("API process 0"))
    server.signal(signal.SIGTERM)
    assert server.ended(25) == 0


def test_serve_without_its_extra_says_what_to_install():
    code = (
        "import importlib.util, sys\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'uvicorn' else real(name)\n"
        "from mstar_core.cli import main\n"
        "sys.exit(main(['serve', 'echo']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'mstar-core[serve]'" in done.stderr


def test_help_needs_no_torch():
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from mstar_core.cli import main\n"
        "sys.exit(main(['serve', '--help']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "--drain SECONDS" in done.stdout) == (0, True)


def test_the_supervisor_has_no_torch(server):
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" not in maps


def test_a_server_whose_log_nobody_reads_any_more_goes_on(tmp_path):
    command = [sys.executable, "-m", "mstar_core", "serve", "echo", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address = process.stderr.readline().rpartition(" ")[2].strip()
    process.stderr.close()
    server = Server(process, tmp_path / "log", shm(), address)
    server.log_path.write_text(f"listening on {address}\n")
    server.ready()
    assert [server.complete("hello").status for _ in range(3)] == [200] * 3
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
