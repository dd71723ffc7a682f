"""The engine as a program uses it: threads, streams, asyncio, interrupts and closing."""

import _thread
import asyncio
import gc
import random
import signal
import threading
import time

import pytest

from mstar_core.engine.device import Lag
from mstar_core.engine.engine import Engine
from mstar_core.engine.events import FinishEvent, TokenEvent
from mstar_core.errors import DeviceFault, RequestError, SealedError
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.scripted import SCRIPTED, Script

SETS = (
    "engine.max_rows=4",
    "engine.token_budget=32",
    "engine.max_context=128",
    "nodes.ledger.resources.kv.page_tokens=8",
)
SLOW = Script(prompt=5, sleep_s=0.003)


def request(salt, prompt=5, new=8, **more):
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=more.pop("id", f"r{salt}"), **more)


def right(given):
    ids, salt = given.arrays["ids"].tolist(), int(given.arrays["salt"][0])
    return continuation(ids, salt, given.max_new_tokens)


def settle(engine):
    """Wait until nothing runs, and check that all of it came back."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        stats = engine.stats()
        idle = not (stats["waiting"] or stats["running"] or stats["in_flight"])
        if idle and all(free == total for free, total in stats["held"].values()):
            return
        time.sleep(0.002)
    raise AssertionError(f"not idle: {engine.stats()}")


@pytest.fixture
def start(tmp_path):
    """Starts engines over the scripted model; each must serve in the end, unless it is closed."""
    engines = []

    def open_one(scripts=None, lag=None, **more):
        folder = tmp_path / str(len(engines))
        core, wired, report = open_wired(SCRIPTED, folder, SETS, lag)
        core.nodes["ledger"].submodule.scripts.update(scripts or {})
        engine = Engine(core, wired, report)
        engines.append(engine)
        return engine

    yield open_one
    for engine in engines:
        if not engine._driver.closed and engine._driver.fault is None:
            settle(engine)
            given = request(96, prompt=13)
            assert engine.run([given])[0].ids == right(given)
        engine.close()
        assert not engine._driver.thread.is_alive()


class Falls(dict):
    """Arrays that raise when they are looked at."""

    def get(self, name):
        raise KeyError(name)


# -- run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [None, Lag(), Lag(seed=2)], ids=str)
def test_results_come_in_the_order_of_the_requests(start, lag):
    engine = start(lag=lag)
    given = [request(n, prompt=n, new=20 - n) for n in range(1, 13)]
    assert [r.ids for r in engine.run(given)] == [right(r) for r in given]


def test_a_request_that_is_refused_says_why_and_the_others_go_on(start):
    engine = start()
    given = [request(1), request(2, new=0), request(3, prompt=127, new=9), request(4)]
    found = engine.run(given)
    assert [r.finish_reason for r in found] == ["length", "error", "error", "length"]
    assert found[1].error["where"] == "max_new_tokens"
    assert found[2].error["where"] == "prompt + max_new_tokens"
    assert (found[0].ids, found[3].ids) == (right(given[0]), right(given[3]))


def test_what_the_door_trips_over_fails_that_request_alone(start):
    """A request whose check raises anything else is not the engine's end."""
    engine = start()
    broken = Request(arrays=Falls(), max_new_tokens=2, id="broken")
    good = request(1)
    found = engine.run([broken, good])
    assert found[0].finish_reason == "error"
    assert found[1].ids == right(good)


def test_requests_of_many_threads_each_get_their_own_tokens(start):
    engine = start()
    found = {}

    def work(first):
        given = [request(first + n, new=6) for n in range(5)]
        for one, result in zip(given, engine.run(given), strict=True):
            found[one.id] = (result.ids, right(one))

    threads = [threading.Thread(target=work, args=(10 * n + 1,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 30
    assert all(ids == want for ids, want in found.values())


@pytest.fixture
def interruptible():
    """SIGINT interrupts, even where the tests were started in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_aborts_what_was_running_and_is_passed_on(start, interruptible):
    engine = start(dict.fromkeys(range(1, 7), SLOW))

    def interrupt():
        while not engine.stats()["rows"]:
            time.sleep(0.001)
        _thread.interrupt_main()

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        engine.run([request(n, new=100) for n in range(1, 7)])
    interrupter.join()
    settle(engine)
    assert engine.stats()["rows"] < 600


def test_requests_made_one_by_one_are_aborted_when_making_them_raises(start):
    engine = start({1: SLOW})

    def requests():
        yield request(1, new=100)
        raise KeyError("the caller's own")

    with pytest.raises(KeyError):
        engine.run(requests())
    settle(engine)
    assert engine.stats()["rows"] < 100


# -- stream --------------------------------------------------------------------------------


def test_a_stream_gives_each_token_as_it_is_read_and_the_finish_last(start):
    engine = start()
    given = request(1)
    *tokens, finish = engine.stream(given)
    assert [e.token for e in tokens] == right(given)
    assert (finish.reason, finish.generated, finish.prompt_items) == ("length", 8, 5)


def test_closing_a_stream_gives_everything_back(start):
    """KV-09"""
    engine = start({1: SLOW})
    stream = engine.stream(request(1, new=100))
    assert isinstance(next(stream), TokenEvent)
    stream.close()
    settle(engine)
    assert engine.stats()["rows"] < 50


def test_two_hundred_streams_left_at_random_moments_leave_nothing_behind(start):
    """KV-09"""
    engine = start()
    rng = random.Random(1)
    for n in range(200):
        stream = engine.stream(request(n % 90 + 1, new=60, id=f"s{n}"))
        for _ in range(rng.randrange(1, 4)):
            next(stream)
        stream.close()
    settle(engine)


def test_a_stream_of_a_refused_request_raises_its_error(start):
    engine = start()
    with pytest.raises(RequestError, match="max_new_tokens"):
        next(engine.stream(request(1, new=0)))


def test_a_stream_that_fails_later_ends_with_the_error_after_its_tokens(start):
    engine = start({1: Script(prompt=5, raise_at=3)})
    given = request(1)
    *tokens, finish = engine.stream(given)
    assert [e.token for e in tokens] == right(given)[:3]
    assert finish.reason == "error"
    assert finish.error["where"] == "request r1"


def test_a_stop_from_outside_ends_the_stream_at_what_was_accepted(start):
    engine = start({1: SLOW})
    given, tokens = request(1, new=100), []
    for event in engine.stream(given):
        if isinstance(event, TokenEvent):
            tokens.append(event.token)
            if len(tokens) == 4:
                engine.stop(given.id, 4)
    assert event.reason == "stop"
    assert event.generated == 4
    assert tokens[:4] == right(given)[:4]
    assert len(tokens) < 50


def test_a_second_request_of_the_same_id_is_refused_and_the_first_one_lives(start):
    """KV-15: neither the refusal nor the end of the refused stream touches the live request."""
    engine = start({1: SLOW})
    first = request(1, new=20, id="a")
    stream = engine.stream(first)
    tokens = [next(stream).token]
    with pytest.raises(RequestError, match="an id that no live request has"):
        list(engine.stream(request(2, id="a")))
    assert engine.run([request(3, id="a")])[0].error["where"] == "id"
    tokens += [e.token for e in stream if isinstance(e, TokenEvent)]
    assert tokens == right(first)
    again = request(4, id="a")
    assert engine.run([again])[0].ids == right(again)


def test_a_stream_closed_late_does_not_end_another_request_of_its_id(start):
    """KV-15"""
    engine = start({2: SLOW})
    old = engine.stream(request(1, new=1, id="a"))
    assert isinstance(next(old), TokenEvent)
    assert isinstance(next(old), FinishEvent)
    new = request(2, new=20, id="a")
    stream = engine.stream(new)
    tokens = [next(stream).token]
    old.close()
    tokens += [e.token for e in stream if isinstance(e, TokenEvent)]
    assert tokens == right(new)


# -- asyncio -------------------------------------------------------------------------------


def test_asyncio_streams_run_side_by_side(start):
    engine = start()
    given = [request(n) for n in range(1, 7)]

    async def read(one):
        return [e.token async for e in engine.astream(one) if isinstance(e, TokenEvent)]

    async def all_of_them():
        return await asyncio.gather(*map(read, given))

    assert asyncio.run(all_of_them()) == [right(one) for one in given]


def test_a_cancelled_asyncio_reader_gives_everything_back(start):
    """KV-09"""
    engine = start({1: SLOW})

    async def read():
        async for _ in engine.astream(request(1, new=100)):
            pass

    async def cancel():
        task = asyncio.create_task(read())
        await asyncio.sleep(0.03)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    settle(engine)
    assert engine.stats()["rows"] < 100


def test_a_refused_asyncio_request_raises_its_error(start):
    engine = start()

    async def read():
        async for _ in engine.astream(request(1, new=0)):
            pass

    with pytest.raises(RequestError, match="max_new_tokens"):
        asyncio.run(read())


def test_a_reader_whose_event_loop_was_closed_ends_alone(start):
    """What the engine's thread cannot deliver is that request's end, never the engine's."""
    engine = start({1: SLOW, 2: SLOW})
    loop = asyncio.new_event_loop()
    stream = engine.astream(request(1, new=100))
    neighbour = engine.stream(request(2, new=20))
    next(neighbour)
    loop.run_until_complete(anext(stream))
    loop.close()
    assert [e.token for e in neighbour if isinstance(e, TokenEvent)] == right(request(2, new=20))[
        1:
    ]
    settle(engine)
    assert engine.stats()["rows"] < 100
    del stream
    gc.collect()


# -- closing -------------------------------------------------------------------------------


def test_closing_aborts_what_runs_and_leaves_no_thread(start):
    engine = start({1: SLOW, 2: SLOW})
    stream = engine.stream(request(1, new=100))
    assert isinstance(next(stream), TokenEvent)
    engine.close()
    *_, finish = stream
    assert finish.reason == "abort"
    assert not engine._driver.thread.is_alive()
    engine.close()
    with pytest.raises(RequestError, match="closed"):
        engine.run([request(3)])
    with pytest.raises(RequestError, match="closed"):
        next(engine.stream(request(3)))


def test_closing_while_others_submit_leaves_nobody_waiting(start):
    for _ in range(10):
        engine = start()
        ends = []

        def work(engine=engine, ends=ends):
            for n in range(1, 50):
                try:
                    ends.append(engine.run([request(n, new=3)])[0].finish_reason)
                except RequestError:
                    ends.append("closed")
                    return

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        engine.close()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert set(ends) <= {"length", "abort", "error", "closed"}


def test_two_engines_of_one_process_serve_side_by_side(start):
    one, other = start(), start(lag=Lag(seed=1))
    given = [request(n, new=12) for n in range(1, 9)]
    found = {}
    thread = threading.Thread(target=lambda: found.update(other=other.run(given)))
    thread.start()
    found["one"] = one.run(given)
    thread.join()
    for results in found.values():
        assert [r.ids for r in results] == [right(r) for r in given]
    one.close()
    assert other.run(given[:1])[0].ids == right(given[0])


def test_hooks_cannot_be_asked_while_the_engine_serves(start):
    engine = start()
    with pytest.raises(SealedError, match="asked while the engine serves"):
        engine._wired.wiring.ask("warmup_event", event=None)
    engine.close()
    assert not engine._wired.wiring.sealed


def test_a_hook_asked_in_a_step_fails_that_step_alone(start, monkeypatch):
    engine = start()
    submodule = engine._core.nodes["ledger"].submodule
    forward = submodule.forward
    asked = []

    def asks(walk, inputs, plans):
        if not asked:
            asked.append(walk)
            engine._wired.wiring.ask("warmup_event", event=None)
        return forward(walk, inputs, plans)

    monkeypatch.setattr(submodule, "forward", asks)
    first, second = engine.run([request(1)]), engine.run([request(2)])
    assert first[0].finish_reason == "error"
    assert "asked while the engine serves" in first[0].error["got"]
    assert second[0].ids == right(request(2))


def test_a_device_fault_ends_every_request_and_shuts_the_door(start, monkeypatch):
    engine = start({1: SLOW, 2: SLOW})

    def fault(timeout_s):
        raise DeviceFault(where="device", got="lost", want="a device", fix="open it again")

    stream = engine.stream(request(1, new=100))
    next(stream)
    monkeypatch.setattr(
        engine._core.lifecycle.device,
        "record",
        lambda: type("E", (), {"wait": staticmethod(fault)}),
    )
    *tokens, finish = stream
    assert finish.reason == "error"
    assert "lost" in finish.error["got"]
    assert finish.generated == 1 + len(tokens)
    with pytest.raises(RequestError, match="fault"):
        engine.run([request(3)])
    engine.close()
