"""Forms: what is taken, in whatever pieces it comes, and where it ends."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request as HttpRequest

from mstar_core.serving import multipart
from mstar_core.serving.errors import ApiError
from mstar_core.serving.multipart import read_form

BOUNDARY = "-----b1"


def part(name, value, *more):
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'
    lines = "".join(f"\r\n{line}" for line in more)
    return f"{head}{lines}\r\n\r\n".encode() + value + b"\r\n"


def file_part(value, name="file"):
    return part(f'{name}"; filename="a.wav', value, "Content-Type: audio/wav")


def ended(*parts):
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def read(*chunks, kind=f"multipart/form-data; boundary={BOUNDARY}"):
    """Fields and the file's bytes of a form that comes in ``chunks``."""
    left = list(chunks)

    async def receive():
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind.encode())]}
    with asyncio.run(read_form(HttpRequest(scope, receive), "file")) as form:
        data = None
        if form.file is not None:
            data = os.pread(form.file, 1 << 20, 0)
    return form.fields, data


def refused(*chunks, **more):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ApiError) as error:
        read(*chunks, **more)
    assert len(os.listdir("/proc/self/fd")) == before
    return error.value.code


def test_a_form_has_fields_by_name_and_a_file():
    body = ended(part("model", b"w"), file_part(b"\x00RIFF\r\n--"), part("prompt", "dü".encode()))
    assert read(body) == ({"model": ["w"], "prompt": ["dü"]}, b"\x00RIFF\r\n--")


def test_a_field_is_the_same_with_brackets_and_without():
    body = ended(part("x[]", b"1"), part("x", b"2"), part("x[]", b"3"))
    assert read(body) == ({"x": ["1", "2", "3"]}, None)


def test_a_file_without_a_filename_is_a_file():
    assert read(ended(part("file", b"abc"))) == ({}, b"abc")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 330), max_size=12))
def test_the_pieces_in_which_a_form_comes_do_not_matter(cuts):
    body = ended(part("model", b"w"), file_part(b"--" + BOUNDARY.encode() * 2), part("b", b"\r\n"))
    places = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    chunks = [body[a:b] for a, b in pairwise(places)]
    want = ({"model": ["w"], "b": ["\r\n"]}, b"--" + BOUNDARY.encode() * 2)
    assert read(*chunks) == want


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form at all",
        ended(file_part(b"abc"))[:-20],
        ended(file_part(b"a"), file_part(b"b")),
        ended(file_part(b"a", name="other")),
        ended(part("", b"a")),
        ended(part("prompt", b"\xff\xfe")),
        f"--{BOUNDARY}\r\nX: y\r\n\r\nvalue\r\n--{BOUNDARY}--\r\n".encode(),
        f"--{BOUNDARY}\r\nno header\r\n\r\nvalue\r\n--{BOUNDARY}--\r\n".encode(),
    ],
)
def test_what_is_no_form_is_refused_and_leaves_no_file_open(body):
    assert refused(body) == "invalid_value"


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", f"multipart/form-data; boundary={'b' * 999}"]
)
def test_a_boundary_that_is_missing_or_endless_is_refused(kind):
    assert refused(ended(), kind=kind) == "invalid_value"


def test_parts_fields_and_headers_are_limited():
    """CVE-2024-47874, CVE-2026-42561, CVE-2026-40347."""
    many = [part(f"x{i}", b"1") for i in range(multipart.MAX_PARTS + 1)]
    assert refused(ended(*many)) == "limit_exceeded"
    assert len(read(ended(*many[1:]))[0]) == multipart.MAX_PARTS
    long = b"x" * (multipart.MAX_FIELD_BYTES + 1)
    assert refused(ended(part("prompt", long))) == "limit_exceeded"
    assert read(ended(part("prompt", long[1:])))[0]["prompt"] == [long[1:].decode()]
    headers = [f"X-{i}: y" for i in range(multipart.MAX_HEADERS)]
    assert refused(ended(part("a", b"1", *headers))) == "invalid_value"
    assert refused(ended(part("a", b"1", "X: " + "y" * multipart.MAX_HEADER_BYTES))) == (
        "invalid_value"
    )
    assert refused(ended(part("n" * 300, b"1"))) == "invalid_value"
