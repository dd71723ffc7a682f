"""A closed loop timed by parts."""

import json

import pytest

from mstar_core.bench.graph_times import graph_times
from mstar_core.bench.offline import Shape, measure
from mstar_core.bench.phases import phases
from mstar_core.cli import main
from mstar_core.engine import Engine
from mstar_core.engine.device import CpuDevice, Lag, Mark

SETS = ("engine.max_rows=4", "engine.max_context=128", "engine.graphs=recorder")
SHAPE = Shape(requests=5, concurrency=2, prompt_tokens=8, output_tokens=6, vocab=250)


@pytest.fixture(scope="module")
def engine():
    with Engine.open("echo", SETS) as opened:
        yield opened


def test_every_replay_is_timed_and_the_graphs_are_as_before(engine):
    core = engine.driver.core
    former = {b: one.graph for b, one in core.lifecycle.buckets.captured.items()}
    before = core.stats()["replayed"]
    with graph_times(core) as times:
        measure(engine, SHAPE)
    us = times.us()
    assert sum(map(len, us.values())) == core.stats()["replayed"] - before > 0
    assert min(min(each) for each in us.values()) > 0
    assert {b: one.graph for b, one in core.lifecycle.buckets.captured.items()} == former


def test_the_parts_of_a_turn_and_the_graphs_are_counted(engine):
    found = phases(engine, SHAPE)
    assert (found.figures.requests, found.figures.failed) == (5, 0)
    assert {"queue", "wait", "deliver"} <= set(found.host)
    assert all(part.total_ms > 0 for part in found.host.values())
    assert sum(one.count for one in found.graphs.values()) >= 5 + 1


@pytest.mark.parametrize("lag", [None, Lag(), Lag(seed=3)], ids=["none", "latest", "seeded"])
def test_a_mark_lies_between_what_was_issued_before_and_behind_it(lag):
    device, order = CpuDevice(lag), []
    first = device.mark()
    device.run(lambda: order.append(1))
    second = device.mark()
    device.record().wait(1.0)
    assert order == [1]
    assert second.us_since(first) > 0

    class Other(Mark):
        def us_since(self, earlier):
            return 0.0

    with pytest.raises(TypeError, match="another device"):
        second.us_since(Other())


def test_the_command_prints_one_round_more_by_parts(capsys):
    sets = [word for each in SETS for word in ("--set", each)]
    command = ["bench", "offline", "echo", *sets, "--requests", "4", "--concurrency", "2"]
    lengths = ["--prompt-tokens", "4", "--output-tokens", "3", "--vocab", "250", "--phases"]
    assert main([*command, *lengths]) == 0
    out = capsys.readouterr().out
    assert "host queue" in out
    assert "graph say" in out
    assert main([*command, *lengths, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["phases"]["host"]["queue"]["count"] > 0
