"""Whatever a client can ask for too much of has a limit, and each limit is seen to hold.

A limit that is added to ``LimitsConfig`` needs a line here: what passes it, and what is answered;
or the test that holds it, where one request and its answer do not show it.
"""

import asyncio
import json
from pathlib import Path

import attrs
import pytest

from mstar_core.config.limits import LimitsConfig
from mstar_core.engine import Engine
from mstar_core.testing.asgi import call
from mstar_core.testing.sound import encoded, tone

ROOT = Path(__file__).parents[2]
TEXT, CHAT, SPEECH = "/v1/completions", "/v1/chat/completions", "/v1/audio/speech"
HEARD = "/v1/audio/transcriptions"
USER = {"role": "user", "content": "x"}
KEY = "a-key-of-some-length"

PASSED = {
    "max_prompt_tokens": (8, TEXT, {"prompt": "x" * 9}, "limit_exceeded"),
    "max_new_tokens": (8, TEXT, {"prompt": "x", "max_tokens": 9}, "limit_exceeded"),
    "max_body_bytes": (1024, TEXT, {"prompt": "x" * 1024}, "body_too_large"),
    "max_json_depth": (4, CHAT, {"messages": [{**USER, "y": [[0]]}]}, "limit_exceeded"),
    "max_choices": (2, TEXT, {"prompt": "x", "n": 3}, "limit_exceeded"),
    "max_messages": (2, CHAT, {"messages": [USER] * 3}, "limit_exceeded"),
    "max_text_chars": (8, TEXT, {"prompt": ["xxxxx", "xxxx"]}, "limit_exceeded"),
    "max_speech_chars": (8, SPEECH, {"input": "x" * 9, "voice": "tone"}, "limit_exceeded"),
    "max_audio_seconds": (0.5, HEARD, 0.6, "audio_too_long"),
    "max_open_tokens": (8, TEXT, {"prompt": "xxxx", "max_tokens": 5}, "limit_exceeded"),
    "max_open_audio_seconds": (0.5, HEARD, 0.6, "limit_exceeded"),
    "request_timeout_s": (0.2, TEXT, {"prompt": "!delay=0.02 x" * 50}, "request_timeout"),
}
"""Limit → (its value, what passes it: a route, and a body or seconds of sound; the code)."""
SECOND = {
    "max_open": (1, "overloaded"),
    "max_open_per_key": (1, "rate_limit_exceeded"),
    "requests_per_minute": (1, "rate_limit_exceeded"),
}
"""Limit → (its value, the code): what the second of two requests at once is told."""
WAITING = {"max_waiting": 1, "max_waiting_tokens": 700}
"""Limit of the engine's line → its value. Of three requests that come while one runs, one waits."""
ELSEWHERE = {
    "host_offload_bytes": (
        "tests/e2e/test_pressure.py",
        "test_beyond_the_bytes_that_may_be_away_requests_are_run_again",
    ),
    "media_timeout_s": ("tests/unit/serving/test_decoder.py", "test_decoding_ends_with_its_time"),
    "media_memory": (
        "tests/unit/serving/test_decoder.py",
        "test_decoding_has_no_more_memory_than_it_is_given",
    ),
    "body_timeout_s": ("tests/unit/serving/test_body.py", "test_a_body_that_drips_is_a_408"),
    "max_unread_bytes": (
        "tests/e2e/serving/test_leaving.py",
        "test_a_client_that_does_not_read_is_cut_off_and_nobody_else_notices",
    ),
    "unread_timeout_s": (
        "tests/unit/serving/test_streaming.py",
        "test_a_client_that_does_not_read_is_cut_off",
    ),
}
"""Limit → the test that holds it."""


def test_each_limit_there_is_has_a_case_here():
    cases = [*PASSED, *SECOND, *WAITING, *ELSEWHERE]
    assert sorted(cases) == sorted(field.name for field in attrs.fields(LimitsConfig))


@pytest.mark.parametrize("name", PASSED)
def test_what_passes_a_limit_is_refused_and_the_next_request_served(rig, name):
    value, path, asked, code = PASSED[name]
    server = rig(limits={name: value})
    heard = isinstance(asked, float)
    told = sound(server, path, asked) if heard else server.ask(path, asked)
    assert told.status in (400, 408, 413)
    assert told.json()["error"]["code"] == code
    small = server.ask(TEXT, {"prompt": "x", "max_tokens": 2})
    assert (small.status, small.json()["choices"][0]["text"]) == (200, "x")
    gate = server.service.admission
    assert (gate.open, gate.tokens, gate.audio_s) == (0, 0, 0.0)


def sound(server, path, seconds):
    """So much of a tone, sent as a form."""
    file = encoded(tone(seconds, 16_000), 16_000, "WAV")
    form = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    body = form + file + b"\r\n--b--\r\n"
    return server.ask(path, body, headers=[("content-type", "multipart/form-data; boundary=b")])


@pytest.mark.parametrize("name", SECOND)
def test_the_second_request_is_told_to_come_back_where_one_is_let_in(rig, name):
    value, code = SECOND[name]
    server = rig(keys=[KEY], limits={name: value})
    bearer = [("authorization", f"Bearer {KEY}")]
    body = json.dumps({"prompt": "!delay=0.02 hello"}).encode()

    async def two():
        asked = [call(server.app, TEXT, body, headers=bearer) for _ in range(2)]
        return await asyncio.gather(*asked)

    good, refused = sorted(asyncio.run(two()), key=lambda told: told.status)
    assert (good.status, refused.status) == (200, 429)
    assert refused.json()["error"]["code"] == code
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize("name", WAITING)
def test_a_line_that_is_full_refuses_the_next_and_those_in_it_are_served(rig, name):
    few = ["engine.max_rows=1", "model.options.faults=true", f"limits.{name}={WAITING[name]}"]
    body = json.dumps({"prompt": "!delay=0.02 hello", "max_tokens": 500}).encode()
    with Engine.open("echo", few) as engine:
        server = rig(limits={name: WAITING[name]}, engine=engine)

        async def four():
            first = asyncio.ensure_future(call(server.app, TEXT, body))
            while not engine.stats()["running"]:
                await asyncio.sleep(0.01)
            rest = [call(server.app, TEXT, body) for _ in range(3)]
            return await asyncio.gather(first, *rest)

        told = sorted(asyncio.run(four()), key=lambda told: told.status)
        assert [each.status for each in told] == [200, 200, 429, 429]
        assert told[-1].json()["error"]["code"] == "overloaded"
        assert int(told[-1].headers["retry-after"]) >= 1
        server.check_good()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_test_of_a_limit_that_one_request_does_not_show_is_there(name):
    path, test = ELSEWHERE[name]
    assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8")
