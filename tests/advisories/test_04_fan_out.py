"""Family 4: an unbounded ``n`` blocks the server before anything is scheduled.

CVE-2026-34756 / GHSA-3mwp-wvh9-7528.
"""

import time

import pytest

TEXT = ("/v1/completions", {"prompt": "x", "max_tokens": 1})
CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
ROUTES = pytest.mark.parametrize(("path", "body"), [TEXT, CHAT])
WAYS = {129: "invalid_value", 16_384: "invalid_value", 10**18: "invalid_value"}


@ROUTES
@pytest.mark.parametrize("n", [9, 128, *WAYS])
def test_more_choices_than_the_limit_are_refused_before_there_is_one(rig, path, body, n):
    server = rig()
    began = time.perf_counter()
    code = WAYS.get(n, "limit_exceeded")
    assert server.code(path, {**body, "n": n}) == (400, code)
    assert time.perf_counter() - began < 1
    assert server.link.submitted == 0
    server.check_good()


@ROUTES
def test_as_many_as_the_limit_are_given(rig, path, body):
    server = rig()
    told = server.ask(path, {**body, "n": 8})
    assert [choice["index"] for choice in told.json()["choices"]] == list(range(8))
    assert server.link.submitted == 8


def test_prompts_times_n_is_bounded_too(rig):
    server = rig()
    body = {"prompt": ["x"] * 100, "n": 8, "max_tokens": 1}
    assert server.code("/v1/completions", body)[0] == 400
    assert server.link.submitted == 0


def test_what_the_choices_ask_for_together_is_counted(rig):
    server = rig(limits={"max_open_tokens": 100})
    body = {"prompt": "x" * 10, "max_tokens": 20}
    assert server.ask("/v1/completions", {**body, "n": 2}).status == 200
    assert server.code("/v1/completions", {**body, "n": 8}) == (400, "limit_exceeded")
    assert server.link.submitted == 2
    server.check_good()
