"""The socket: TLS, a unix socket, heads of requests that are too long, too slow, or no HTTP."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from mstar_core.serving.http_server import HEAD_S, MAX_HEAD_BYTES


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def complete(connection, prompt):
    body = json.dumps({"model": "echo", "prompt": prompt})
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer["choices"][0]["text"]


def test_a_unix_socket_serves_and_one_that_was_left_over_is_replaced(serve, tmp_path):
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    server = serve("--uds", str(path), port=None).bound()
    assert server.address == f"unix:{path}"
    server.until(lambda: "ready     unix:" in server.log)
    assert complete(UnixConnection(path), "by name") == "by name"
    second = serve("--uds", str(path), port=None)
    assert second.ended() == 1
    assert complete(UnixConnection(path), "still") == "still"


def test_tls_serves_to_those_who_trust_its_certificate(serve, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not there")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    server = serve("--tls-cert", str(cert), "--tls-key", str(key)).bound()
    assert server.address.startswith("https://127.0.0.1:")
    server.until(lambda: f"ready     {server.address}" in server.log)
    trust = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trust, timeout=60)
    assert complete(connection, "in secret") == "in secret"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain:
        plain.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200" not in plain.recv(100)


def raw(server, data):
    """Send bytes, and read until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        found = b""
        try:
            sock.sendall(data)
            while piece := sock.recv(1 << 16):
                found += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return found


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        b"HELLO\r\n\r\n",
        b"GET /live HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"GET /live HTTP/1.1\r\nhost localhost\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_the_shape_of_all_errors(server, data):
    head, _, body = raw(server, data).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"] == {
        "message": "The request is not valid HTTP.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_value",
    }


@pytest.mark.parametrize(
    "head", [b"GET /" + b"a" * (2 * MAX_HEAD_BYTES), b"GET / HTTP/1.1\r\nx: " + b"a" * (1 << 20)]
)
def test_a_head_without_end_is_cut_off(server, head):
    assert b"200" not in raw(server, head)
    assert server.get("/live").status == 200


def test_a_large_body_is_no_long_head(server):
    prompt = "x" * 60_000
    body = json.dumps({"model": "echo", "prompt": prompt, "max_tokens": 1, "pad": "y" * 400_000})
    answer = server.ask("POST", "/v1/completions", body)
    assert (answer.status, answer.json["choices"][0]["text"]) == (200, "x")


@pytest.mark.long
def test_a_head_that_does_not_come_ends_its_connection(server):
    begun = time.monotonic()
    assert raw(server, b"GET /live HTTP/1.1\r\nhost:") == b""
    assert HEAD_S <= time.monotonic() - begun < 5 * HEAD_S


def test_no_other_port_is_listened_on(server):
    """Every process of the server: only the one port, and no unix socket with a name."""
    own = {f"socket:[{line.split()[9]}]" for line in listening("tcp") | listening("tcp6")}
    server.note_pids()
    found = set()
    for pid in server.seen:
        found |= own & set(descriptors(pid))
    assert len(found) == 1


def listening(kind):
    with open(f"/proc/net/{kind}") as table:
        return {line for line in table.read().splitlines()[1:] if line.split()[3] == "0A"}


def descriptors(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
