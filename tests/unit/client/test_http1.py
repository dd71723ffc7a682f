"""HTTP/1.1 out of bytes, in any pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_core.client.errors import BadAnswer, ConnectionLost
from mstar_core.client.http1 import END, Head, ResponseParser, request_bytes
from mstar_core.errors import RequestError

CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
    b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\ntrailer: x\r\n\r\n"
)
LENGTH = b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nabc"
EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
NONE = b"HTTP/1.1 204 No Content\r\n\r\n"


def answers(items):
    """(status, body) of each whole answer."""
    found, head, body = [], None, b""
    for item in items:
        if isinstance(item, Head):
            head, body = item, b""
        elif item is END:
            found.append((head.status, body))
        else:
            body += item
    return found


@given(st.lists(st.integers(1, 200), max_size=60))
def test_answers_are_the_same_in_whatever_pieces_they_arrive(cuts):
    data, parser, items = CHUNKED + LENGTH + NONE + EMPTY, ResponseParser("x"), []
    for cut in cuts:
        items += parser.feed(data[:cut])
        data = data[cut:]
    items += parser.feed(data)
    assert answers(items) == [(200, b"hello world"), (404, b"abc"), (204, b""), (200, b"")]


def test_headers_are_in_lower_case_and_joined_and_a_connection_says_whether_it_is_kept():
    (head, *_) = ResponseParser("x").feed(CHUNKED)
    assert head.headers["x-a"] == "1, 2"
    assert head.keeps_alive
    assert not ResponseParser("x").feed(EMPTY)[0].keeps_alive
    assert not ResponseParser("x").feed(b"HTTP/1.1 200 OK\r\n\r\n")[0].keeps_alive
    old = b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n"
    assert not ResponseParser("x").feed(old + b"\r\n")[0].keeps_alive
    assert ResponseParser("x").feed(old + b"connection: keep-alive\r\n\r\n")[0].keeps_alive


def test_a_body_without_a_length_ends_with_the_connection():
    parser = ResponseParser("x")
    items = parser.feed(b"HTTP/1.0 200 OK\r\n\r\nabc")
    assert answers(items + parser.eof()) == [(200, b"abc")]


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 20", CHUNKED[:-1], CHUNKED[:140], LENGTH[:-1]])
def test_a_connection_that_ends_in_the_middle_is_lost(sent):
    parser = ResponseParser("POST /x")
    parser.feed(sent)
    with pytest.raises(ConnectionLost, match="POST /x"):
        parser.eof()


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20000,
    ],
)
def test_what_is_no_http_is_a_bad_answer(sent):
    with pytest.raises(BadAnswer):
        ResponseParser("x").feed(sent)


@pytest.mark.parametrize("value", ["a\r\nevil: 1", "ü", "a\0"])
def test_a_header_that_would_break_the_request_is_refused(value):
    with pytest.raises(RequestError, match="x-request-id"):
        request_bytes("GET", "/", {"x-request-id": value}, b"")
