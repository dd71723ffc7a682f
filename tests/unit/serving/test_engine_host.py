"""The engine process's side of a connection: order, size of frames, and a thread that ends."""

import asyncio
import os
import queue
import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_core.engine.driver import Driver
from mstar_core.engine.events import FinishEvent, ItemsEvent, TokenEvent
from mstar_core.errors import DeviceFault, Words
from mstar_core.model.front import Request
from mstar_core.serving.arena import make_arena
from mstar_core.serving.crossing import arrays_of
from mstar_core.serving.engine_host import EngineHost
from mstar_core.serving.errors import ApiError
from mstar_core.serving.inlet import Inlet
from mstar_core.serving.link import EngineState
from mstar_core.serving.messages import Cancelled, End, Scores
from mstar_core.serving.outbox import MAX_EVENTS, Live, Outbox, messages_of
from mstar_core.serving.remote import RemoteLink


def token(number, top=()):
    return TokenEvent(request="r", token=number, logprob=-0.5, top=top)


def finish(**options):
    return FinishEvent(request="r", reason="stop", prompt_items=1, generated=1, **options)


def end_of(live, event):
    return End(live.stream, event.reason)


def a_live(stream, outbox, scored=False):
    return Live(outbox=outbox, stream=stream, id="r", group="g", scored=scored)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300)), max_size=60))
def test_columns_keep_the_order_of_each_stream(events):
    outbox = Outbox()
    lives = [a_live(stream, outbox) for stream in range(5)]
    (came,) = messages_of([(lives[stream], token(number)) for stream, number in events], end_of)
    found, at = {}, 0
    for stream, number in zip(came.streams, came.counts, strict=True):
        found[stream] = came.tokens[at : at + number]
        at += number
    wanted = {s: [n for stream, n in events if stream == s] for s, _ in events}
    assert (found, at) == (wanted, len(events))


def test_only_streams_that_asked_have_scores_and_ends_come_behind():
    outbox = Outbox()
    plain, scored = a_live(1, outbox), a_live(2, outbox, scored=True)
    events = [(plain, token(5)), (scored, token(6, ((6, -0.5),))), (scored, finish())]
    (came,) = messages_of(events, end_of)
    assert (came.streams, came.counts, came.tokens) == ([1, 2], [1, 1], [5, 6])
    assert came.scores == [Scores(2, [-0.5], [[(6, -0.5)]])]
    assert came.ends == [End(2, "stop")]


def test_items_go_before_the_tokens_and_ends_that_came_with_them():
    outbox = Outbox()
    one, two = a_live(1, outbox), a_live(2, outbox)
    sound = np.arange(6, dtype=np.float32).reshape(3, 2)
    made = [ItemsEvent(request="r", arrays={"sound": piece}) for piece in (sound[:2], sound[2:])]
    events = [(one, token(5)), (one, made[0]), (two, made[1]), (one, made[1]), (one, finish())]
    *items, came = messages_of(events, end_of)
    assert [each.stream for each in items] == [1, 2, 1]
    pieces = [array for each in items if each.stream == 1 for _, array in arrays_of(each)]
    assert np.array_equal(np.concatenate(pieces), sound)
    assert (came.tokens, came.ends) == ([5], [End(1, "stop")])


def test_what_piled_up_is_taken_in_pieces_and_none_is_lost():
    outbox = Outbox()
    live = a_live(1, outbox)
    for number in range(MAX_EVENTS + 3):
        live(token(number))
    outbox.answer(Cancelled(1, 0))
    (first, answers), (second, none) = outbox.take(), outbox.take()
    assert [event.token for _, event in first + second] == list(range(MAX_EVENTS + 3))
    assert (len(first), len(second), answers, none) == (MAX_EVENTS, 3, [Cancelled(1, 0)], [])


def test_a_writer_that_waits_is_woken_and_told_of_the_end_once_all_is_taken():
    outbox, found = Outbox(), []
    live = a_live(1, outbox)

    def write():
        goes_on = True
        while goes_on:
            goes_on = outbox.wait()
            found.append((goes_on, [event.token for _, event in outbox.take()[0]]))

    waiting = threading.Thread(target=write)
    waiting.start()
    for number in range(MAX_EVENTS + 1):
        live(token(number))
    outbox.close()
    waiting.join(10)
    assert [n for _, taken in found for n in taken] == list(range(MAX_EVENTS + 1))
    assert found[-1][0] is False


def test_a_call_wakes_an_inlet_that_waits_and_calls_keep_their_order():
    inlet, got = Inlet(), []

    def take():
        got.extend(inlet.get(block=True) for _ in range(3))

    waiting = threading.Thread(target=take, daemon=True)
    waiting.start()
    time.sleep(0.05)  # it waits by now; where it does not, it finds the calls
    calls = [lambda: None, lambda: None, None]
    for call in calls:
        inlet.put(call)
    waiting.join(10)
    assert got == calls
    with pytest.raises(queue.Empty):
        inlet.get(block=False)
    inlet.end()


class Told:
    """A connection that notes when it is asked to write."""

    def __init__(self):
        self.socket, self.far = socket.socketpair()
        self.flushed, self.heard, self.left = [], b"", False

    def read(self):
        data = self.socket.recv(100)
        self.heard += data
        return bool(data)

    def flush(self, *, resting):
        self.flushed.append(resting)

    def unwatched(self):
        self.left = True
        self.socket.close()
        self.far.close()


def test_an_inlet_reads_between_turns_and_has_everything_written_before_it_rests():
    inlet, told = Inlet(), Told()
    inlet.watch(told)
    inlet.get(block=False)()
    told.far.send(b"abc")
    with pytest.raises(queue.Empty):
        inlet.get(block=False)
    assert (told.heard, told.flushed) == (b"abc", [False])
    threading.Timer(0.05, inlet.put, (None,)).start()
    assert inlet.get(block=True) is None
    assert told.flushed == [False, True]
    inlet.end()


def test_an_inlet_leaves_a_connection_at_its_end_and_all_at_its_own():
    inlet, first, second = Inlet(), Told(), Told()
    for each in (first, second):
        inlet.watch(each)
        inlet.get(block=False)()
    first.far.close()
    with pytest.raises(queue.Empty):
        inlet.get(block=False)
    assert (first.left, second.left) == (True, False)
    inlet.end()
    assert second.left


class FaultyCore:
    """A core whose device fails in the first turn with a request."""

    def __init__(self):
        self.idle = True

    def submit(self, request):
        self.idle = False

    def turn(self):
        raise DeviceFault(where="step 1", got=Words("no answer"), want="an event", fix="")

    def drain(self):
        return iter(())

    def num_generated(self, request_id):
        return 0


def test_a_device_fault_ends_requests_as_a_restart_does_and_says_nothing_of_the_device():
    async def body():
        host = EngineHost()
        driver = Driver(FaultyCore(), host.inlet)
        host.serve(driver)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        memory = make_arena(1 << 16)
        host.connect(0, (theirs.detach(), os.dup(memory)))
        link = RemoteLink()
        await link.attach(ours.detach(), memory)
        link.state = EngineState(phase="ready")
        ended = None
        try:
            generation = link.submit(Request(arrays={"ids": np.arange(3)}), group="g")
            ended = (await generation.arrived()).ended
            assert not driver.thread.is_alive() or driver.fault is not None
            for _ in range(500):
                if link.state.phase != "ready":
                    break
                await asyncio.sleep(0.01)
            with pytest.raises(ApiError) as late:
                link.submit(Request(arrays={"ids": np.arange(3)}), group="g")
        finally:
            link.detach()
            await asyncio.sleep(0.01)
            host.close()
        assert (ended.code, ended.error) == ("engine_restarted", None)
        assert (late.value.code, link.state.phase) == ("not_ready", "restarting")

    asyncio.run(asyncio.wait_for(body(), 20))


def test_progress_is_counted_and_an_idle_engine_rests(tiny_engine):
    from mstar_core.echo.front import EchoFront

    engine = tiny_engine("echo")
    driver = engine.driver
    before = driver.acts
    assert driver.resting
    engine.run([EchoFront().text_request("abc")])
    for _ in range(500):
        if driver.resting:
            break
        time.sleep(0.01)
    assert (driver.resting, driver.acts > before + 3) == (True, True)
