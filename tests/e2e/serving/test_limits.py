"""Limits and keys of a real server, by the bytes that a client writes."""

import json
import socket
import time

import pytest

from .conftest import start

KEY = "a-key-of-some-length"
BEARER = f"authorization: Bearer {KEY}\r\n"
JSON = "content-type: application/json\r\n"
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: any.example\r\n" + BEARER + JSON
BODY_S = 0.5


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limited")
    (folder / "keys").write_text(f"{KEY}\n")
    made = start(
        folder,
        "--api-key-file",
        str(folder / "keys"),
        "--set",
        "limits.max_body_bytes=64KiB",
        "--set",
        f"limits.body_timeout_s={BODY_S}",
    )
    made.bound()
    made.until(lambda: made.get("/ready", authorization=f"Bearer {KEY}").status == 200)
    made.note_pids()
    yield made
    made.stop()


def say(server, *pieces, pause_s=0.0):
    """What comes back, until the server closes: (status, headers, body)."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as opened:
        for piece in pieces:
            try:
                opened.sendall(piece if isinstance(piece, bytes) else piece.encode())
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(pause_s)
        answer = b""
        try:
            while data := opened.recv(65536):
                answer += data
        except ConnectionResetError:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().lower().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


def code(told):
    return told[0], json.loads(told[2])["error"]["code"]


def test_a_length_past_the_limit_is_a_413_and_the_end_of_the_connection(limited):
    told = say(limited, HEAD + "content-length: 999999\r\n\r\n", b"x" * 100)
    assert code(told) == (413, "body_too_large")
    assert told[1]["connection"] == "close"


def test_chunks_are_counted_while_they_come(limited):
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    told = say(limited, HEAD + "transfer-encoding: chunked\r\n\r\n", *([chunk] * 40))
    assert code(told) == (413, "body_too_large")


def test_a_body_that_does_not_come_is_a_408(limited):
    began = time.monotonic()
    told = say(limited, HEAD + "content-length: 1000\r\n\r\n", b"{")
    assert code(told) == (408, "request_timeout")
    assert BODY_S * 0.8 < time.monotonic() - began < BODY_S * 5 + 5


@pytest.mark.parametrize(
    "lines",
    [
        "content-length: 2\r\ncontent-length: 3\r\n",
        "content-length: -1\r\n",
        "content-length: 0x10\r\n",
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
    ],
)
def test_lengths_that_can_be_read_in_two_ways_are_refused(limited, lines):
    told = say(limited, HEAD + "connection: close\r\n" + lines + "\r\n", b"{}")
    assert told[0] in (400, 408, 501)


def test_everything_but_live_and_the_page_needs_a_key(limited):
    assert limited.get("/live").status == 200
    assert limited.get("/").status == 200
    for path in ("/ready", "/metrics", "/v1/models", "/openapi.json", "/nothing"):
        assert limited.get(path).status == 401
        told = limited.get(path, authorization=f"Bearer {KEY}")
        assert told.status == (404 if path == "/nothing" else 200)


def test_a_good_request_is_answered(limited):
    body = {"prompt": "good", "max_tokens": 8}
    told = limited.post("/v1/completions", body, authorization=f"Bearer {KEY}")
    assert told.json["choices"][0]["text"] == "good"
    assert "key=1" in limited.log
    assert KEY not in limited.log
