"""Family 12: what a server tells of its inside in errors, and labels that anybody can make up.

CVE-2026-22778, CVE-2026-54236, CVE-2025-23319, CVE-2025-23320, CVE-2025-23334, PYSEC-2026-4325.
"""

import ast
import asyncio
import json
import re
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mstar_core.errors import RequestError
from mstar_core.serving.errors import CODES
from mstar_core.serving.metrics import Metrics
from mstar_core.serving.routes import Route
from mstar_core.serving.routes.table import all_routes
from mstar_core.testing.asgi import call

INSIDE = re.compile(
    rb"0x[0-9a-f]{6,}|/dev/shm|site-packages|Traceback|\.py\b|line \d+, in|object at|"
    rb"<class '|/proc/|/tmp/|memfd|msgspec|attrs|starlette|uvicorn|torch|numpy",
    re.IGNORECASE,
)
"""What no client is ever told."""
PATHS = sorted(
    {route.path.replace("{id:path}", "x").replace("{id}", "x") for route in all_routes()}
)
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"]
FIELDS = [
    "prompt",
    "messages",
    "max_tokens",
    "temperature",
    "n",
    "stop",
    "stream",
    "model",
    "tokens",
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(width=32) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), values, max_size=5)
MOST_TOKENS = 64
"""Answers are short, so that the fuzz is of requests."""
HOSTILE = [
    b"",
    b"\x00" * 64,
    b"[" * 100_000,
    b'{"a":' * 5_000,
    b'{"prompt": "' + b"\\ud800" + b'"}',
    b'{"prompt": "x", "max_tokens": 1' + b"0" * 5_000 + b"}",
    b'{"prompt": "x", "temperature": NaN}',
    b"\xff\xfe{\x00}\x00",
    b"--x\r\n",
]


def check(told):
    """A body of a refusal has the one shape and nothing of our inside."""
    if told.status >= 400 and told.body:
        error = told.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert CODES[error["code"]] == (told.status, error["type"])
        assert not INSIDE.search(told.body), told.body
    for name, value in told.headers.items():
        assert not INSIDE.search(f"{name}: {value}".encode()), (name, value)


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_bodies_that_are_meant_to_break_a_parser_are_told_nothing(rig, body):
    server = rig()
    for path in PATHS:
        for headers in ([], [("content-type", "multipart/form-data; boundary=x")]):
            told = server.ask(path, [body], method="POST", headers=headers)
            assert told.status < 500
            check(told)
    server.check_good()


def test_a_fuzz_of_bodies_is_told_nothing(rig):
    server = rig(limits={"max_new_tokens": MOST_TOKENS})

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(path=st.sampled_from(PATHS), body=bodies)
    def fuzz(path, body):
        text = json.dumps(body, allow_nan=True).encode()
        told = server.ask(path, text, method="POST")
        assert told.status < 500, told.body
        check(told)

    fuzz()
    server.check_good()


def test_a_fuzz_of_requests_is_told_nothing(rig):
    server = rig()
    name = st.sampled_from(["host", "origin", "authorization", "content-type", "x-request-id"])
    text = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30)

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        path=st.sampled_from(PATHS) | st.text(max_size=20),
        method=st.sampled_from(METHODS),
        headers=st.lists(st.tuples(name, text), max_size=4),
        body=st.binary(max_size=40),
    )
    def fuzz(path, method, headers, body):
        told = server.ask(path, [body], method=method, headers=headers)
        assert told.status < 500 or path == "/ready", told.body
        check(told)

    fuzz()
    server.check_good()


class Unspeakable(Exception):
    """Its text and its representation are our inside."""

    def __repr__(self):
        return f"<{threading.Lock()} /dev/shm/psm_1234 0x7ffe01234567>"

    __str__ = __repr__


RAISED = [
    Unspeakable(),
    KeyError("/dev/shm/psm_1234"),
    FileNotFoundError(2, "No such file", "/usr/lib/site-packages/x.py"),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "at 0x7ffe01234567"),
    ExceptionGroup("many", [Unspeakable()]),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_exception_that_nobody_wrote_for_clients_is_not_told(rig, error):
    async def handler(exchange):
        raise error

    from mstar_core.serving.app import create_app

    route = Route(method="POST", path="/v1/do", handler=handler, summary="A test's")
    app = create_app(rig().service, routes=[route])
    told = asyncio.run(call(app, "/v1/do", b"x"))
    assert (told.status, told.json()["error"]["code"]) == (500, "internal_error")
    check(told)


def test_an_object_that_was_refused_is_told_without_its_address(rig):
    async def handler(exchange):
        raise RequestError(where="field", got=object(), want="a number", fix="send one")

    from mstar_core.serving.app import create_app

    route = Route(method="POST", path="/v1/do", handler=handler, summary="A test's")
    told = asyncio.run(call(create_app(rig().service, routes=[route]), "/v1/do", b"x"))
    check(told)


@pytest.mark.parametrize("order", ["!raise", "!hear", "!voice", "!nan", "!front", "!decode"])
def test_a_model_that_breaks_is_told_without_its_inside(rig, order):
    server = rig()
    told = server.ask("/v1/completions", {"prompt": f"{order} x", "max_tokens": 8})
    assert told.status == 500
    check(told)
    told = server.ask("/v1/completions", {"prompt": f"{order} x", "max_tokens": 8, "stream": True})
    assert not INSIDE.search(told.body)
    server.check_good()


def test_labels_are_made_by_nobody_outside(rig):
    server = rig()
    for number in range(50):
        server.ask(f"/made-up-{number}", method=f"M{number}")
        server.ask("/v1/completions", {"model": f"made-up-{number}", "prompt": "x"})
        server.ask("/v1/completions", {f"made-up-{number}": 1})
    text = server.ask("/metrics").body.decode()
    assert "made-up" not in text
    assert "M4" not in text
    labels = {
        name for metric in Metrics().registry.collect() for s in metric.samples for name in s.labels
    }
    assert labels <= {"route", "outcome", "code", "le", "version", "resource"}


def test_no_shipped_code_of_the_server_tells_clients_an_exceptions_text(shipped):
    found = []
    for path, tree in shipped.items():
        if not path.startswith("mstar_core/serving/") or path == "mstar_core/serving/codec.py":
            continue
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "ApiError"):
                continue
            inner = {ast.unparse(n) for a in node.args for n in ast.walk(a)}
            if inner & {"error", "exc", "e", "str(error)", "repr(error)"}:
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_a_long_value_is_repeated_in_short(rig):
    server = rig()
    told = server.ask("/v1/completions", {"prompt": ["x" * 5000, 3], "max_tokens": 1})
    assert told.status == 400
    assert len(told.body) < 1000
