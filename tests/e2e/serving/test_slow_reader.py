"""A client that asks for a long stream and reads none of it, against a real server."""

import json
import socket


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
