"""The engine in process, in a closed loop."""

import gc
import json
import threading

import pytest

from mstar_core.bench.closed_loop import ClosedLoop
from mstar_core.bench.offline import Shape, measure
from mstar_core.cli import main
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.engine.events import FinishEvent
from mstar_core.errors import RequestError

SETS = ("engine.max_rows=4", "engine.max_context=128", "engine.kv_memory=4MiB")


@pytest.fixture(scope="module")
def engine():
    with Engine.open("echo", SETS) as opened:
        yield opened


def shape(**more):
    facts = {"requests": 11, "concurrency": 3, "prompt_tokens": 8, "output_tokens": 6}
    return Shape(**{**facts, "vocab": 250, **more})


def test_every_request_runs_to_its_last_token(engine):
    found = measure(engine, shape())
    assert (found.requests, found.failed) == (11, 0)
    assert (found.mean_prompt_tokens, found.mean_output_tokens) == (8.0, 6.0)
    assert (found.ttft_ms.count, found.itl_ms.count, found.tpot_ms.count) == (11, 55, 11)
    assert found.tokens_per_chunk == 1.0


def test_as_many_are_open_as_were_asked_for_until_none_is_left(engine):
    front, open_now, most, begun = engine.front, set(), [], threading.Event()
    engine._driver.call(lambda: begun.wait(30))  # nothing runs until the first four are in

    class Watched:
        """The engine, and how many requests are open whenever one is let in or ends."""

        def submit(self, request, listener):
            open_now.add(request.id)
            most.append(len(open_now))

            def listen(event):
                if isinstance(event, FinishEvent):
                    open_now.discard(event.request)
                listener(event)

            engine.submit(request, listen)
            if len(most) == 4:
                begun.set()

    requests = [front.ids_request([1, 2, 3], max_new_tokens=5) for _ in range(12)]
    counts = []
    assert len(ClosedLoop(Watched(), counts.append).run(requests, 4)) == 12
    assert counts == list(range(1, 13))
    assert most == [1, 2, 3, 4] + [4] * 8


def test_garbage_that_was_there_before_is_left_alone_while_requests_run(engine, nothing_frozen):
    frozen = []

    class Watched:
        """The engine, and how much is left alone whenever a request is let in."""

        front = engine.front

        def submit(self, request, listener):
            frozen.append(gc.get_freeze_count())
            engine.submit(request, listener)

    measure(Watched(), shape(requests=3))
    assert min(frozen) > 10_000
    assert gc.get_freeze_count() == 0


def test_a_request_that_is_refused_is_counted_and_the_loop_goes_on(engine):
    long = engine.front.ids_request([1] * 300, max_new_tokens=5)
    good = engine.front.ids_request([1], max_new_tokens=5, sampling=SamplingSettings())
    heard = ClosedLoop(engine).run([long, good], 1)
    assert [one.sample().error is None for one in heard] == [False, True]
    assert [one.result().finish_reason for one in heard] == ["error", "stop"]


def test_a_loop_of_no_requests_is_over_at_once(engine):
    assert ClosedLoop(engine).run([], 4) == []


def test_a_closed_engine_ends_the_loop():
    with Engine.open("echo", SETS) as opened:
        requests = [opened.front.ids_request([1], max_new_tokens=2)]
    with pytest.raises(RequestError, match="closed"):
        ClosedLoop(opened).run(requests, 1)


def test_a_listener_is_called_on_the_engines_thread_with_every_event(engine):
    events, threads, over = [], set(), threading.Event()

    def listen(event):
        events.append(event)
        threads.add(threading.current_thread().name)
        if isinstance(event, FinishEvent):
            over.set()

    engine.submit(engine.front.ids_request([1, 2], max_new_tokens=2), listen)
    assert over.wait(30)
    assert len(events) == 3
    assert threads == {"mstar-engine"}
    with pytest.raises(RequestError, match="a str"):
        engine.submit("hello", listen)


def test_an_engine_says_what_the_ids_of_a_prompt_are_below(engine):
    assert engine.prompt_ids == 257


def test_the_command_prints_a_round_or_several_and_json(capsys):
    sets = [word for each in SETS for word in ("--set", each)]
    command = ["bench", "offline", "echo", *sets, "--requests", "4", "--concurrency", "2"]
    lengths = ["--prompt-tokens", "4", "--output-tokens", "3", "--vocab", "250"]
    assert main([*command, *lengths]) == 0
    assert "ttft_ms" in capsys.readouterr().out
    assert main([*command, *lengths, "--rounds", "2"]) == 0
    assert "least" in capsys.readouterr().out
    assert main([*command, *lengths, "--json", "--warmup", "0"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rounds"][0]["requests"], told["report"]["model"]) == (4, "echo")
    assert {"machine", "commit", "command", "shape", "stats"} <= set(told)


def test_a_round_that_failed_as_a_whole_says_what_was_wanted_and_fails(capsys):
    sets = [word for each in SETS for word in ("--set", each)]
    command = ["bench", "offline", "echo", *sets, "--requests", "2", "--warmup", "0"]
    assert main([*command, "--prompt-tokens", "99999", "--output-tokens", "3"]) == 1
    printed = capsys.readouterr().out
    assert "error      2 x 99999 prompt tokens and 3 new ones; want at most " in printed
