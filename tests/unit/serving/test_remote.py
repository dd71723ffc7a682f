"""The link to an engine process, over a real socket whose other end the test holds."""

import asyncio
import contextlib
import gc
import socket

import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import RequestError
from mstar_core.model.front import Request
from mstar_core.serving.arena import ArenaView, make_arena
from mstar_core.serving.crossing import ITEMS_BYTES, items_of, request_of
from mstar_core.serving.errors import ApiError
from mstar_core.serving.failures import failure
from mstar_core.serving.framing import Frames, framed
from mstar_core.serving.generation import MAX_ITEM_BYTES
from mstar_core.serving.link import Arrived, Ended, EngineState
from mstar_core.serving.messages import (
    Abort,
    Cancel,
    Cancelled,
    End,
    FromApi,
    Scores,
    Stats,
    Stop,
    Submit,
    Tokens,
    decoded,
)
from mstar_core.serving.peer import MAX_UNSENT
from mstar_core.serving.remote import INLINE_BYTES, RemoteLink
from mstar_core.testing.engine_child import num_descriptors

ARENA = 1 << 20


class Engine:
    """The other end."""

    def __init__(self, connection, memory):
        self.socket = connection
        self.view = ArenaView(memory)
        self._frames = Frames()
        self._heard = []

    async def hears(self):
        """The next message; None at the end of the connection."""
        while not self._heard:
            data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)
            if not data:
                return None
            self._heard += self._frames.feed(data)
        return decoded(self._heard.pop(0), FromApi)

    def says(self, *messages):
        self.socket.sendall(b"".join(map(framed, messages)))


@contextlib.asynccontextmanager
async def joined(link=None, ready=True):
    """A link that is attached, and the engine at its other end; nothing is left behind."""
    link = link or RemoteLink()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    memory = make_arena(ARENA)
    theirs.setblocking(False)
    with theirs:
        engine = Engine(theirs, memory)
        await link.attach(ours.detach(), memory)
        link.state = EngineState(phase="ready" if ready else "weights")
        try:
            yield link, engine
        finally:
            link.detach()
            for _ in range(3):
                await asyncio.sleep(0)


@pytest.fixture
def run():
    """Run a coroutine; afterwards no more descriptors are open than before."""

    def run(coroutine):
        before = num_descriptors()
        result = asyncio.run(asyncio.wait_for(coroutine, 20))
        if num_descriptors() > before:
            gc.collect()  # an error that was caught holds frames
        assert num_descriptors() <= before
        return result

    return run


def a_request(items=4, **options):
    return Request(arrays={"ids": np.arange(items)}, **options)


def tokens(stream, *ids, ends=(), scores=()):
    return Tokens([stream], [len(ids)], list(ids), list(scores), list(ends))


def test_tokens_that_came_are_taken_all_at_once_and_in_order(run):
    async def body():
        async with joined() as (link, engine):
            one, two = (link.submit(a_request(), group="g") for _ in range(2))
            engine.says(
                Tokens([one.stream, two.stream], [2, 1], [1, 2, 9], [], []),
                tokens(one.stream, 3),
                tokens(one.stream, 4, ends=[End(one.stream, "stop", 4, 4, 1, 2)]),
            )
            ended = Ended(
                reason="stop", prompt_items=4, generated=4, cached_tokens=1, preemptions=2
            )
            assert await two.arrived() == Arrived(tokens=[9], logprobs=[], tops=[])
            came = await one.arrived()
            assert came == Arrived(tokens=[1, 2, 3, 4], logprobs=[], tops=[], ended=ended)
            assert link.num_live == 1

    run(body())


def test_one_who_waits_is_woken_by_what_comes_later(run):
    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            waiting = asyncio.ensure_future(generation.arrived())
            await asyncio.sleep(0.01)
            assert not waiting.done()
            engine.says(tokens(generation.stream, 5))
            assert (await waiting).tokens == [5]

    run(body())


def test_waiting_can_be_given_up_and_begun_again(run):
    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(generation.arrived(), 0.01)
            engine.says(tokens(generation.stream, 5))
            assert (await generation.arrived()).tokens == [5]

    run(body())


def test_items_come_in_order_beside_the_tokens_and_before_the_end(run):
    sound = np.arange(24, dtype=np.float32).reshape(6, 4)

    async def body():
        async with joined() as (link, engine):
            one, two = (link.submit(a_request(), group="g") for _ in range(2))
            engine.says(
                *items_of(one.stream, {"sound": sound[:2]}),
                tokens(one.stream, 1),
                *items_of(two.stream, {"sound": sound[5:], "loud": np.int16([[7]])}),
                *items_of(one.stream, {"sound": sound[2:5]}),
                tokens(one.stream, ends=[End(one.stream, "stop", 4, 1)]),
            )
            other = await two.arrived()
            assert {name: a.tolist() for name, a in other.items.items()} == {
                "sound": sound[5:].tolist(),
                "loud": [[7]],
            }
            came = await one.arrived()
            assert (came.tokens, came.ended.reason) == ([1], "stop")
            assert np.array_equal(came.items["sound"], sound[:5])
            engine.says(*items_of(two.stream, {"sound": sound[:1]}))
            later = await two.arrived()
            assert np.array_equal(later.items["sound"], sound[:1])
            assert not later.tokens

    run(body())


def test_many_items_cross_in_messages_of_a_bounded_size(run):
    sound = np.random.default_rng(0).integers(0, 99, (700, 1920)).astype(np.float32)
    messages = list(items_of(3, {"sound": sound}))
    assert len(messages) > 1
    assert all(each.arrays[0].nbytes <= ITEMS_BYTES for each in messages)

    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            pieces, loop = [], asyncio.get_running_loop()
            for message in items_of(generation.stream, {"sound": sound}):
                await loop.sock_sendall(engine.socket, framed(message))
                pieces.append((await generation.arrived()).items["sound"])
            assert np.array_equal(np.concatenate(pieces), sound)

    run(body())


def test_who_leaves_more_sound_unread_than_is_kept_ends(run):
    """The engine is told, and what waited is given up."""
    block = np.zeros((1, 250_000), np.float32)

    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            assert isinstance(await engine.hears(), Submit)
            loop = asyncio.get_running_loop()
            for message in items_of(generation.stream, {"sound": block}):
                for _ in range(MAX_ITEM_BYTES // block.nbytes + 1):
                    await loop.sock_sendall(engine.socket, framed(message))
            assert isinstance(await engine.hears(), Abort)
            came = await generation.arrived()
            assert not came.items
            assert failure(came.ended).code == "client_too_slow"

    run(body())


def test_log_probabilities_come_with_their_tokens(run):
    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            scores = Scores(generation.stream, [-0.5, -1.0], [[(7, -0.5)], [(3, -0.2), (8, -1.0)]])
            engine.says(tokens(generation.stream, 7, 8, scores=[scores]))
            came = await generation.arrived()
            assert (came.tokens, came.logprobs, came.tops) == ([7, 8], scores.logprobs, scores.tops)

    run(body())


def test_a_request_arrives_as_it_was_large_inputs_in_shared_memory(run):
    async def body():
        async with joined() as (link, engine):
            large = np.random.default_rng(0).random((100, 300))
            given = Request(
                arrays={"ids": np.arange(5)[::-1], "mel": large},
                max_new_tokens=9,
                stop_ids={3},
                priority=2,
                deadline_s=1.5,
                sampling=SamplingSettings(temperature=0.5, seed=4, logit_bias={7: -1.0}),
                settings={"prefix": {"salt": "x"}},
            )
            assert given.arrays["mel"].nbytes > INLINE_BYTES
            generation = link.submit(given, group="0/r")
            message = await engine.hears()
            assert isinstance(message, Submit)
            assert (message.stream, message.group) == (generation.stream, "0/r")
            assert isinstance(message.arrays[0].data, bytes)
            got = request_of(message, engine.view)
            for name, array in given.arrays.items():
                assert np.array_equal(got.arrays[name], array)
                assert got.arrays[name].dtype == array.dtype
            for name in ("id", "max_new_tokens", "stop_ids", "priority", "deadline_s", "sampling"):
                assert getattr(got, name) == getattr(given, name)
            assert got.settings == given.settings

    run(body())


def test_shared_memory_is_given_back_at_the_end_and_more_than_there_is_is_overload(run):
    async def body():
        async with joined() as (link, engine):
            arena = link._peer.arena
            first = link.submit(a_request(ARENA // 16), group="g")
            with pytest.raises(ApiError) as full:
                link.submit(a_request(ARENA // 8 - 64), group="g")
            assert (full.value.code, full.value.status) == ("overloaded", 429)
            assert arena.num_taken == 1
            with pytest.raises(ApiError) as too_large:
                link.submit(a_request(ARENA // 8 + 1), group="g")
            assert too_large.value.code == "limit_exceeded"
            engine.says(tokens(first.stream, ends=[End(first.stream, "stop")]))
            await first.arrived()
            assert arena.num_taken == 0
            link.submit(a_request(ARENA // 8 - 64), group="g")

    run(body())


def test_inputs_that_do_not_cross_are_refused_and_leave_nothing(run):
    async def body():
        async with joined() as (link, _):
            arrays = {"mel": np.zeros(1 << 15), "ids": np.array(["a"])}
            with pytest.raises(RequestError, match=r"arrays\.ids"):
                link.submit(Request(arrays=arrays), group="g")
            assert link._peer.arena.num_taken == 0
            assert link.num_live == 0

    run(body())


def test_stop_and_abort_are_said_once_and_only_while_it_lives(run):
    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            await engine.hears()
            generation.stop(3)
            generation.abort()
            generation.abort()
            assert await engine.hears() == Stop(generation.stream, 3)
            assert await engine.hears() == Abort(generation.stream)
            engine.says(tokens(generation.stream, ends=[End(generation.stream, "abort")]))
            assert (await generation.arrived()).ended.reason == "abort"
            generation.stop(1)
            generation.abort()
            engine.says(tokens(generation.stream, 5))
            cancelled = asyncio.ensure_future(link.cancel("g"))
            asked = await engine.hears()
            assert asked == Cancel(asked.ask, "g")
            engine.says(Cancelled(asked.ask, 2))
            assert await cancelled == 2

    run(body())


def test_of_an_aborted_request_nothing_is_kept_but_its_end(run):
    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            generation.abort()
            end = End(generation.stream, "abort", 4, 2)
            engine.says(tokens(generation.stream, 5, 6, ends=[end]))
            came = await generation.arrived()
            assert (came.tokens, came.ended.generated) == ([], 2)
            assert link.num_live == 0

    run(body())


def test_the_end_of_the_engine_ends_everything_and_another_engine_serves_again(run):
    async def body():
        link = RemoteLink()
        async with joined(link) as (_, engine):
            generation = link.submit(a_request(), group="g")
            engine.says(tokens(generation.stream, 5))
            waiting = asyncio.ensure_future(link.cancel("g"))
            await asyncio.sleep(0.01)
            engine.socket.close()
            assert await waiting == 0
            came = await generation.arrived()
            lost = (came.tokens, came.ended.reason, came.ended.code)
            assert lost == ([5], "error", "engine_restarted")
            assert link.state.phase == "restarting"
            assert link.num_live == 0
            with pytest.raises(ApiError, match="not ready"):
                link.submit(a_request(), group="g")
            assert await link.cancel("g") == 0
        async with joined(link) as (_, engine):
            generation = link.submit(a_request(), group="g")
            engine.says(tokens(generation.stream, 6))
            assert (await generation.arrived()).tokens == [6]

    run(body())


def test_attaching_again_ends_what_the_older_connection_had(run):
    async def body():
        link = RemoteLink()
        async with joined(link) as (_, first):
            old = link.submit(a_request(), group="g")
            async with joined(link) as (_, second):
                assert (await old.arrived()).ended.code == "engine_restarted"
                new = link.submit(a_request(), group="g")
                second.says(tokens(new.stream, 6))
                assert (await new.arrived()).tokens == [6]
            assert isinstance(await first.hears(), Submit)
            assert await first.hears() is None

    run(body())


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x01\0\0\0\xc1", b"\0\0\0\0"])
def test_garbage_ends_the_connection_and_nothing_else(run, caplog, garbage):
    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            engine.socket.sendall(garbage)
            assert (await generation.arrived()).ended.code == "engine_restarted"
            assert link.state.phase == "restarting"

    run(body())
    assert "no message" in caplog.text


def test_requests_that_end_by_draining_say_so_and_keep_saying_so(run):
    async def body():
        async with joined() as (link, engine):
            generation = link.submit(a_request(), group="g")
            assert link.fail_all("draining") == 1
            engine.says(tokens(generation.stream, ends=[End(generation.stream, "abort")]))
            await asyncio.sleep(0.05)
            assert (await generation.arrived()).ended.code == "draining"
            assert link.num_live == 0

    run(body())


@pytest.mark.parametrize(
    ("phase", "code"), [("starting", "not_ready"), ("stalled", "not_ready"), ("draining",) * 2]
)
def test_requests_are_taken_only_when_the_engine_is_ready(run, phase, code):
    async def body():
        async with joined() as (link, _):
            link.state = EngineState(phase=phase)
            with pytest.raises(ApiError) as refused:
                link.submit(a_request(), group="g")
            assert (refused.value.code, refused.value.status) == (code, 503)

    run(body())


def test_an_engine_that_takes_nothing_is_overload_until_it_does(run):
    async def body():
        async with joined() as (link, engine):
            large = {f"part{i}": np.zeros(INLINE_BYTES // 8) for i in range(60)}
            for _ in range(20):
                if link._peer.is_full:
                    break
                link.submit(Request(arrays=large), group="g")
            with pytest.raises(ApiError) as full:
                link.submit(a_request(), group="h")
            assert full.value.code == "overloaded"
            while link._peer.is_full:
                await engine.hears()
            link.submit(a_request(), group="g")

    run(body())


def test_all_texts_of_a_request_are_let_in_where_its_first_was(run):
    async def body():
        async with joined() as (link, _):
            ids = np.zeros(INLINE_BYTES // 8, np.int64)
            for _ in range(2 * MAX_UNSENT // INLINE_BYTES):
                link.submit(Request(arrays={"ids": ids}), group="g")
            assert link._peer.is_full
            with pytest.raises(ApiError, match="does not keep up"):
                link.submit(a_request(), group="other")

    run(body())


def test_counts_are_those_that_were_last_told(run):
    async def body():
        async with joined() as (link, engine):
            assert link.stats() == {"restarts": 0}
            engine.says(Stats({"running": 3}), Stats({"running": 4}))
            await asyncio.sleep(0.05)
            assert link.stats() == {"running": 4, "restarts": 0}

    run(body())
