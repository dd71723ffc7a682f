"""Clients of a real server that do not read what they asked for, or leave."""

import json
import re
import socket

import pytest

USER = {"role": "user", "content": "hello"}


def test_a_client_that_does_not_read_is_cut_off_and_nobody_else_notices(serve):
    """The limits are small here, so that it takes a second."""
    limits = ("limits.max_unread_bytes=65536", "limits.unread_timeout_s=2")
    server = serve(*(part for limit in limits for part in ("--set", limit))).ready()
    body = json.dumps({"prompt": "x" * 8000, "n": 8, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    sleeper = socket.socket()
    try:
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect(("127.0.0.1", server.port))
        sleeper.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)

        def cut():
            """the line of the request that was cut off"""
            return "outcome=client_too_slow" in server.log

        server.until(cut, timeout_s=60)
        assert server.stream("hello") == ("hello", None, True)
        sleeper.settimeout(30)
        data = b""
        try:
            while got := sleeper.recv(1 << 20):
                data += got
        except ConnectionResetError:
            pass
        assert b"[DONE]" not in data
    finally:
        sleeper.close()
    assert "Traceback" not in server.log


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_client_that_leaves_takes_its_request_along(server, path, stream):
    """Streamed or not, its requests are out of the engine at once (KV-09)."""
    endless = {"ignore_eos": True, "n": 3, "stream": stream, "max_tokens": 60_000}
    prompt = {"prompt": "x"} if path == "/v1/completions" else {"messages": [USER]}
    connection = server.connect()
    name = f"leaves-{path.rpartition('/')[2]}-{path.count('/')}-{stream}"
    head = {"content-type": "application/json", "x-request-id": name}
    connection.request("POST", path, json.dumps({**prompt, **endless}), head)

    def running():
        """its three choices are in the engine"""
        return number(server, "mstar_requests_running") == 3

    def gone():
        """nothing is in the engine"""
        return number(server, "mstar_requests_running") == 0

    server.until(running)
    connection.close()
    server.until(gone, timeout_s=10)
    line = re.search(rf"request id={name} .*$", server.log, re.MULTILINE)[0]
    assert "outcome=client_disconnect" in line


def number(server, name):
    """A metric without labels."""
    text = server.get("/metrics").body.decode()
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])
