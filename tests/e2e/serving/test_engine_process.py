"""A real engine process and links to it: every way in which a request, or either side, can end."""

import asyncio
import contextlib
import os
import random
import re
import signal
import socket

import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.echo.front import EchoFront
from mstar_core.serving.crossing import submit_of
from mstar_core.serving.engine_process import CLOSE_S, FAULT
from mstar_core.serving.framing import framed
from mstar_core.serving.orders import Beat, Connect, Failed
from mstar_core.serving.remote import RemoteLink
from mstar_core.testing.engine_child import EngineChild

FRONT = EchoFront(faults=True)
SETS = ("model.options.faults=true", "engine.kv_memory=16MiB")


@pytest.fixture(scope="module")
def child():
    with EngineChild("echo", SETS) as child:
        child.wait_ready()
        yield child


@contextlib.contextmanager
def another(*sets):
    """An engine process of the test's own."""
    with EngineChild("echo", (*SETS, *sets)) as child:
        child.wait_ready()
        yield child


@contextlib.asynccontextmanager
async def linked(child, api=0, link=None):
    link = await child.join(link or RemoteLink(), api, media_bytes=16 << 20)
    try:
        yield link
    finally:
        link.detach()
        for _ in range(3):
            await asyncio.sleep(0)


def ask(link, text, group="g", **options):
    options.setdefault("max_new_tokens", 4096)
    return link.submit(FRONT.text_request(text, **options), group=group)


async def whole(generation):
    """Its text, and how it ended."""
    ids = []
    while True:
        came = await generation.arrived()
        ids += came.tokens
        if came.ended is not None:
            return FRONT.decode(ids), came.ended


async def begun(generation):
    await generation.arrived()
    return generation


async def until(what, timeout_s=20):
    for _ in range(int(timeout_s / 0.02)):
        if what():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not in {timeout_s} s")


async def idle(link):
    """The engine holds nothing, and says so."""
    before = link._peer.stats

    def says_so():
        stats = link.stats()
        return (
            link._peer.stats is not before
            and (stats["running"], stats["waiting"], stats["in_flight"]) == (0, 0, 0)
            and all(free == total for free, total in stats["held"].values())
        )

    await until(says_so)


def run(body):
    return asyncio.run(asyncio.wait_for(body, 60))


def test_many_requests_at_once_are_each_answered_with_their_own(child):
    async def body():
        async with linked(child) as link:
            texts = [f"{i}: " + "äbc"[i % 3 :] * i for i in range(40)]
            answers = await asyncio.gather(*(whole(ask(link, text)) for text in texts))
            assert [text for text, _ in answers] == texts
            assert {ended.reason for _, ended in answers} == {"stop"}
            assert [ended.generated for _, ended in answers] == [len(t.encode()) for t in texts]
            assert link.num_live == 0
            await idle(link)

    run(body())


def test_a_long_prompt_goes_through_shared_memory_and_the_memory_comes_back(child):
    async def body():
        async with linked(child) as link:
            text = "x" * 20_000
            answer, ended = await whole(ask(link, text, max_new_tokens=16))
            assert (answer, ended.reason, ended.prompt_items) == (text[:16], "length", 20_000)
            assert link._peer.arena.num_taken == 0

    run(body())


def test_log_probabilities_are_there_where_they_were_asked_for(child):
    async def body():
        async with linked(child) as link:
            scored = ask(link, "ab", sampling=SamplingSettings(logprobs=1))
            plain, logprobs, tops, tokens = ask(link, "ab"), [], [], []
            ended = None
            while ended is None:
                came = await scored.arrived()
                tokens += came.tokens
                logprobs += came.logprobs
                tops += came.tops
                ended = came.ended
            assert len(tokens) == len(logprobs) == len(tops)
            came = await plain.arrived()
            assert (came.logprobs, came.tops) == ([], [])
            await whole(plain) if came.ended is None else None

    run(body())


def test_a_request_that_the_door_refuses_ends_with_what_is_wrong(child):
    async def body():
        async with linked(child) as link:
            _, ended = await whole(ask(link, "a", max_new_tokens=1 << 20))
            assert (ended.reason, ended.code) == ("error", None)
            assert ended.error["where"] == "prompt + max_new_tokens"
            bad = FRONT.text_request("a", settings={"nonsense": 1})
            _, ended = await whole(link.submit(bad, group="g"))
            assert ended.error["where"] == "settings.nonsense"

    run(body())


def test_one_that_fails_inside_says_so_and_the_others_go_on(child):
    async def body():
        async with linked(child) as link:
            good, bad = ask(link, "!delay=0.001 good"), ask(link, "!raise@2 bad")
            _, ended = await whole(bad)
            assert (ended.reason, ended.code) == ("error", "request_failed")
            assert (await whole(good))[1].reason == "stop"

    run(body())


def test_stop_keeps_so_many_tokens_and_abort_ends_within_a_step(child):
    async def body():
        async with linked(child) as link:
            slow = "!delay=0.005 " + "x" * 2000
            stopped, aborted = [await begun(ask(link, slow)) for _ in range(2)]
            stopped.stop(1)
            aborted.abort()
            ends = [(await whole(each))[1] for each in (stopped, aborted)]
            assert [(end.reason, end.error) for end in ends] == [("stop", None), ("abort", None)]
            assert ends[0].generated == 1
            await idle(link)

    run(body())


def test_cancel_ends_the_requests_of_its_group_on_every_connection_and_no_other(child):
    async def body():
        async with linked(child, 0) as here, linked(child, 1) as there:
            slow = "!delay=0.005 " + "x" * 500
            mine = [await begun(ask(link, slow, "0/a")) for link in (here, there, there)]
            other = await begun(ask(here, "!delay=0.005 y", "1/a"))
            assert await here.cancel("0/a") == 3
            assert [(await whole(each))[1].reason for each in mine] == ["abort"] * 3
            assert (await whole(other))[1].reason == "stop"
            assert await here.cancel("0/a") == 0

    run(body())


def test_two_hundred_random_aborts_leave_nothing(child):
    draw = random.Random(5)

    async def one(link, number):
        text = "!delay=0.0005 " + "x" * draw.choice([3, 60, 9000])
        generation = ask(link, text, str(number))
        end = draw.random() * 0.1
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(whole(generation), end)
        draw.choice([generation.abort, lambda: generation.stop(0)])()
        if draw.random() < 0.5:
            generation.abort()

    async def body():
        async with linked(child) as link:
            running = set()
            for number in range(200):
                running.add(asyncio.ensure_future(one(link, number)))
                if len(running) >= 16:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*running)
            await until(lambda: link.num_live == 0)
            assert link._peer.arena.num_taken == 0
            await idle(link)

    run(body())


def test_a_link_that_is_gone_leaves_nothing_in_the_engine(child):
    async def body():
        async with linked(child, 1) as watching:
            async with linked(child, 0) as link:
                for _ in range(8):
                    await begun(ask(link, "!delay=0.005 " + "x" * 9000))
                await until(lambda: watching.stats().get("running") == 8)
            await idle(watching)

    run(body())


def test_garbage_ends_its_own_connection_and_no_other(child):
    async def body():
        async with linked(child, 0) as link:
            sockets = []
            for api, garbage in enumerate([b"\xff" * 8, b"\x01\0\0\0\xc1", os.urandom(5000)], 1):
                fd, memory = child.dial(api)
                os.close(memory)
                sockets.append(socket.socket(fileno=fd))
                sockets[-1].sendall(garbage)
            for each in sockets:
                each.settimeout(20)
                with contextlib.suppress(ConnectionResetError):
                    while each.recv(1 << 16):
                        pass
                each.close()
            assert (await whole(ask(link, "still here")))[0] == "still here"

    run(body())


def test_a_hundred_damaged_requests_end_at_most_their_own_connections(child):
    draw = random.Random(7)

    def damaged(number):
        request = FRONT.text_request("abc", max_new_tokens=4)
        data = bytearray(framed(submit_of(request, number, "g", np.ndarray.tobytes)))
        for _ in range(draw.choice([1, 2, 8])):
            data[draw.randrange(4, len(data))] = draw.randrange(256)
        return data

    async def body():
        async with linked(child, 0) as link:
            for number in range(100):
                fd, memory = child.dial(1)
                os.close(memory)
                with socket.socket(fileno=fd) as each:
                    each.sendall(damaged(number))
            assert (await whole(ask(link, "still here")))[0] == "still here"
            await idle(link)

    run(body())


def test_descriptors_that_are_no_connection_are_closed_and_change_nothing(child):
    async def body():
        memory = os.memfd_create("loose")
        child.control.send(Connect(3))
        child.control.send(Connect(3), (memory, memory))
        os.close(memory)
        async with linked(child) as link:
            assert (await whole(ask(link, "fine")))[0] == "fine"

    run(body())


def test_signals_are_left_to_the_supervisor(child):
    async def body():
        async with linked(child) as link:
            for number in (signal.SIGINT, signal.SIGTERM):
                child.process.send_signal(number)
            assert (await whole(ask(link, "still here")))[0] == "still here"

    run(body())
    assert child.process.poll() is None


def test_the_engine_process_has_one_thread_for_a_connection_and_frees_it(child):
    threads = f"/proc/{child.process.pid}/task"

    async def body():
        before = None
        for _ in range(5):
            async with linked(child) as link:
                await whole(ask(link, "a"))
                before = before or len(os.listdir(threads))
        await until(lambda: len(os.listdir(threads)) <= before - 1)

    run(body())


def test_what_a_start_has_built_is_left_alone_by_the_collector_while_it_serves():
    """To go through all of it again and again would hold steps up for a tenth of a second each."""
    told = """
import gc, os
from mstar_core.serving.engine_host import EngineHost
serve = EngineHost.serve
def telling(host, driver):
    os.write(2, b"frozen %d of %d;" % (gc.get_freeze_count(), len(gc.get_objects())))
    serve(host, driver)
EngineHost.serve = telling
"""
    child = EngineChild("echo", SETS, before=told)
    child.wait_ready()
    frozen, others = re.search(r"frozen (\d+) of (\d+);", child.close()).groups()
    assert int(frozen) > 20 * int(others)


def test_kill_9_ends_every_request_and_another_process_serves_the_same_link():
    async def first(child, link):
        async with linked(child, link=link):
            mine = [await begun(ask(link, "!delay=0.005 " + "x" * 2000)) for _ in range(8)]
            child.kill()
            ends = await asyncio.wait_for(asyncio.gather(*map(whole, mine)), 2 * 5)
            assert {end.code for _, end in ends} == {"engine_restarted"}
            assert (link.num_live, link.state.phase) == (0, "restarting")

    async def body():
        link = RemoteLink()
        with another() as child:
            await first(child, link)
        with another() as child:
            async with linked(child, link=link):
                assert (await whole(ask(link, "again")))[0] == "again"
                assert link.stats()["restarts"] == 1

    run(body())


def test_a_hung_engine_stands_still_in_its_beats_and_sigabrt_writes_its_stacks():
    async def body(child):
        async with linked(child) as link:
            hung = ask(link, "!hang@1 abc")
            first = await asyncio.to_thread(child.until, Beat, lambda beat: beat.busy)
            await asyncio.to_thread(child.until, Beat, lambda b: b.busy and b.turns == first.turns)
            child.process.send_signal(signal.SIGABRT)
            _, ended = await whole(hung)
            assert ended.code == "engine_restarted"

    with another() as child:
        run(body(child))
        assert child.process.wait(10) == -signal.SIGABRT
        assert "in _drive" in child.close()


@pytest.mark.parametrize("order", ["", "!hang@1 abc"], ids=["idle", "hung"])
def test_a_supervisor_that_is_gone_takes_the_engine_process_with_it(order):
    async def body(child):
        async with linked(child) as link:
            asked = ask(link, order) if order else None
            await asyncio.sleep(0.2 if order else 0)
            child.control.close()
            if asked is not None:
                assert (await whole(asked))[1].code == "engine_restarted"

    with another() as child:
        run(body(child))
        assert child.process.wait(CLOSE_S * 5) == 0


def test_a_supervisor_that_is_gone_ends_a_start_too():
    with EngineChild("echo", SETS) as child:
        child.control.close()
        assert child.process.wait(30) == 0


def test_a_device_fault_ends_the_process_at_once_with_its_own_code():
    broken = (
        "from mstar_core.engine.core import EngineCore\n"
        "from mstar_core.errors import DeviceFault\n"
        "def turn(self): raise DeviceFault(where='step 1')\n"
        "EngineCore.turn = turn"
    )

    async def body(child):
        async with linked(child) as link:
            _, ended = await whole(ask(link, "abc"))
            assert (ended.code, ended.error) == ("engine_restarted", None)

    with EngineChild("echo", SETS, before=broken) as child:
        child.wait_ready()
        run(body(child))
        assert child.process.wait(CLOSE_S * 5) == FAULT
        assert "device fault: the engine ends" in child.close()


def test_a_request_before_the_engine_is_open_is_told_so():
    async def body(child):
        async with linked(child) as link:
            _, ended = await whole(ask(link, "early"))
            assert ended.code in ("not_ready", None)  # it may be open by now

    with EngineChild("echo", SETS) as child:
        run(body(child))


@pytest.mark.parametrize("config", ["no-such-config", "echo"])
def test_a_configuration_that_cannot_be_used_is_told_and_ends_with_1(config):
    with EngineChild(config, ["engine.max_rows=-1"]) as child:
        with pytest.raises(AssertionError, match="did not start"):
            child.until(Failed, lambda _: False)
        assert child.process.wait(30) == 1


def test_numbers_of_numpy_cross_like_any_other(child):
    async def body():
        async with linked(child) as link:
            request = FRONT.ids_request(np.frombuffer(b"abc", np.uint8), max_new_tokens=np.int64(3))
            assert (await whole(link.submit(request, group="g")))[0] == "abc"

    run(body())
