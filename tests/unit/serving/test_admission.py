"""Who is let in, who is told to come back and when; and that everything is given back."""

import asyncio
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response

from mstar_core.config.limits import LimitsConfig
from mstar_core.serving.admission import Admission
from mstar_core.serving.errors import ApiError
from mstar_core.serving.rates import Bucket, Pace
from mstar_core.serving.routes import Route
from mstar_core.testing.asgi import call


class Clock:
    """Time that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def admission(processes=1, clock=time.monotonic, **limits):
    return Admission(LimitsConfig(**limits), processes, clock)


def refused(enter):
    with pytest.raises(ApiError) as caught:
        enter()
    return caught.value


def enter_in(gate, key="", headers=None):
    context = gate.door(key, {} if headers is None else headers)
    return context, context.__enter__()


def leave(context):
    context.__exit__(None, None, None)


def held(gate):
    return gate.open, gate.tokens, gate.audio_s, dict(gate.by_key)


NOTHING = (0, 0, 0.0, {})


def test_the_request_behind_the_last_place_is_refused_until_one_ends():
    gate = admission(max_open=2)
    first, _ = enter_in(gate)
    second, _ = enter_in(gate)
    error = refused(lambda: enter_in(gate))
    assert (error.status, error.code) == (429, "overloaded")
    leave(first)
    third, _ = enter_in(gate)
    leave(second)
    leave(third)
    assert held(gate) == NOTHING


def test_a_key_has_places_of_its_own():
    gate = admission(max_open_per_key=1)
    first, _ = enter_in(gate, "1")
    assert refused(lambda: enter_in(gate, "1")).code == "rate_limit_exceeded"
    other, _ = enter_in(gate, "2")
    leave(first)
    leave(other)
    assert held(gate) == NOTHING


def test_tokens_are_counted_over_open_requests():
    gate = admission(max_open_tokens=100)
    first, a = enter_in(gate)
    second, b = enter_in(gate)
    a.take(tokens=60)
    b.take(tokens=40)
    assert refused(lambda: b.take(tokens=1)).code == "overloaded"
    leave(first)
    b.take(tokens=60)
    leave(second)
    assert held(gate) == NOTHING


def test_seconds_of_sound_are_counted_over_open_requests():
    gate = admission(max_open_audio_seconds=10.0, max_audio_seconds=8.0)
    first, a = enter_in(gate)
    second, b = enter_in(gate)
    a.take(audio_s=6.5)
    assert refused(lambda: b.take(audio_s=4.0)).code == "overloaded"
    b.take(audio_s=3.5)
    leave(first)
    leave(second)
    assert held(gate) == NOTHING


def test_what_no_server_of_these_limits_ever_takes_is_not_told_to_come_back():
    gate = admission(max_open_tokens=100)
    context, ticket = enter_in(gate)
    error = refused(lambda: ticket.take(tokens=101))
    assert (error.status, error.code, error.retry_after_s) == (400, "limit_exceeded", None)
    ticket.take(tokens=60)
    assert refused(lambda: ticket.take(tokens=60)).code == "limit_exceeded"
    leave(context)
    assert held(gate) == NOTHING


def test_a_request_that_takes_nothing_is_not_refused_for_what_others_hold():
    gate = admission(max_open_tokens=10)
    first, a = enter_in(gate)
    a.take(tokens=10)
    second, b = enter_in(gate)
    b.take()
    leave(first)
    leave(second)


def test_processes_share_the_limits():
    gate = admission(processes=4, max_open=10, max_open_tokens=100, requests_per_minute=2)
    assert (gate.max_open, gate.max_tokens, gate.per_minute) == (3, 25, 1)


def test_a_share_still_takes_one_sound_of_the_longest():
    gate = admission(processes=8, max_open_audio_seconds=7200.0, max_audio_seconds=1800.0)
    assert gate.max_audio_s == 1800.0


def test_a_minute_has_so_many_requests_and_headers_say_how_many_are_left():
    clock = Clock()
    gate = admission(clock=clock, requests_per_minute=2)
    told = []
    for _ in range(2):
        headers = {}
        context, _ = enter_in(gate, "1", headers)
        leave(context)
        told.append(headers)
    assert [h["x-ratelimit-remaining-requests"] for h in told] == ["1", "0"]
    assert [h["x-ratelimit-reset-requests"] for h in told] == ["30.000s", "60.000s"]
    assert told[0]["x-ratelimit-limit-requests"] == "2"
    headers = {}
    error = refused(lambda: enter_in(gate, "1", headers))
    assert (error.code, error.retry_after_s) == ("rate_limit_exceeded", 30.0)
    assert headers["x-ratelimit-remaining-requests"] == "0"
    other, _ = enter_in(gate, "2")
    leave(other)
    clock.now += 30.0
    again, _ = enter_in(gate, "1")
    leave(again)
    assert held(gate) == NOTHING


def test_without_a_limit_per_key_there_are_no_headers():
    headers = {}
    context, _ = enter_in(admission(), "1", headers)
    leave(context)
    assert headers == {}


def test_retry_after_is_the_time_between_ends():
    clock = Clock()
    gate = admission(clock=clock, max_open=1)
    for _ in range(5):
        context, _ = enter_in(gate)
        clock.now += 4.0
        leave(context)
    context, _ = enter_in(gate)
    assert refused(lambda: enter_in(gate)).retry_after_s == 4.0
    clock.now += 9.0
    assert refused(lambda: enter_in(gate)).retry_after_s == 9.0
    clock.now += 1000.0
    assert refused(lambda: enter_in(gate)).retry_after_s == 60.0
    leave(context)


def test_a_pace_of_nothing_and_of_one_end_is_a_second():
    clock = Clock()
    pace = Pace(clock)
    assert pace.wait_s() == 1.0
    pace.ended()
    assert pace.wait_s() == 1.0


def test_a_bucket_never_holds_more_than_a_minutes_worth():
    clock = Clock()
    bucket = Bucket(60, clock)
    clock.now += 1e6
    assert [bucket.take() for _ in range(60)] == [0.0] * 60
    assert bucket.take() == pytest.approx(1.0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["open", "take", "close", "raise"]),
        st.integers(0, 5),
        st.integers(0, 120),
        st.floats(0, 12, allow_nan=False),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(steps=steps)
def test_whatever_is_asked_refused_or_raised_all_of_it_comes_back(steps):
    limits = {"max_open": 4, "max_open_tokens": 200, "max_open_audio_seconds": 20.0}
    gate = admission(max_open_per_key=2, max_audio_seconds=10.0, **limits)
    live = []
    for act, which, tokens, audio_s in steps:
        if act == "open":
            try:
                live.append(enter_in(gate, str(which % 3)))
            except ApiError:
                assert gate.open == 4 or gate.by_key[str(which % 3)] == 2
        elif live and act == "take":
            before = held(gate)
            try:
                live[which % len(live)][1].take(tokens=tokens, audio_s=audio_s)
            except ApiError:
                assert held(gate) == before
        elif live:
            context, _ = live.pop(which % len(live))
            if act == "close":
                leave(context)
            else:
                assert not context.__exit__(KeyError, KeyError("x"), None)
        assert gate.open == len(live) <= 4
        assert gate.tokens == sum(t.tokens for _, t in live) <= 200
        assert gate.audio_s == pytest.approx(sum(t.audio_s for _, t in live), abs=1e-6)
    for context, _ in live:
        leave(context)
    assert held(gate) == NOTHING


FATES = ["answer", "api", "bug", "leave", "timeout", "stream", "big"]


def test_the_application_gives_back_what_requests_held_however_they_ended(rig):
    async def handler(exchange):
        exchange.admit(tokens=int(exchange.http.headers["x-tokens"]), audio_s=0.5)
        fate = exchange.http.headers["x-fate"]
        await asyncio.sleep(random.Random(exchange.id).random() * 0.01)
        if fate == "api":
            raise ApiError("invalid_value", "No.")
        if fate == "bug":
            raise KeyError(fate)
        if fate == "timeout":
            await asyncio.sleep(60)
        await exchange.http.body()
        return Response(b"x")

    limits = {"max_open": 8, "max_open_tokens": 500, "request_timeout_s": 0.1}
    routes = [
        Route(method="POST", path="/v1/do", handler=handler, summary="A test's", capability="text")
    ]
    server = rig(routes=routes, limits={**limits, "max_body_bytes": 1024})

    async def one(number):
        fate = FATES[number % len(FATES)]
        headers = [("x-fate", fate), ("x-tokens", str(number % 150))]
        body = b"x" * 2000 if fate == "big" else b"x"
        gone = fate == "leave"
        return await call(server.app, "/v1/do", [body], headers=headers, leaves=gone, stalls=gone)

    async def run():
        told = []
        for first in range(0, 210, 10):
            told += await asyncio.gather(*(one(first + more) for more in range(10)))
        return told

    told = asyncio.run(run())
    assert {t.status for t in told} == {0, 200, 400, 408, 413, 429, 500}
    assert held(server.service.admission) == NOTHING


def test_a_full_server_refuses_before_a_byte_of_the_body_is_read(rig):
    inside = asyncio.Event()

    async def handler(exchange):
        inside.set()
        await asyncio.sleep(60)

    routes = [
        Route(method="POST", path="/v1/do", handler=handler, summary="A test's", capability="text")
    ]
    server = rig(routes=routes, limits={"max_open": 1})

    async def run():
        busy = asyncio.create_task(call(server.app, "/v1/do", b"x"))
        await inside.wait()
        began = time.perf_counter()
        told = await call(server.app, "/v1/do", [b"", b"never"], method="POST", stalls=True)
        took = time.perf_counter() - began
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
        return told, took

    told, took = asyncio.run(run())
    assert (told.status, told.json()["error"]["code"]) == (429, "overloaded")
    assert told.headers["retry-after"] == "1"
    assert took < 0.05 * 5
    assert held(server.service.admission) == NOTHING
