"""The door's sums: what a request can come to hold, node by node and resource by resource."""

import numpy as np
import pytest
from attrs import evolve

from mstar_core.engine.door import Limits, check_request, passed_by
from mstar_core.engine.openings import openings
from mstar_core.errors import RequestError
from mstar_core.model.front import Request
from mstar_core.model.walks import Input, Loop, Once, Output, Sequence, Stream, Walk
from mstar_core.sched.request import tracks_of
from mstar_core.testing.cores import open_ledger
from mstar_core.testing.ledger import ledger_request

FRAMES = Walk(
    name="encode",
    node="n",
    feed="prompt",
    inputs=(Input(name="frames", dtype="model", shape=(3, 2)),),
)


@pytest.fixture
def core(tmp_path):
    return open_ledger(tmp_path, ("engine.max_rows=2", "engine.max_context=64"))[0]


@pytest.mark.parametrize(("prompt", "new"), [(1, 1), (5, 8), (40, 24)])
def test_a_request_can_come_to_hold_its_prompt_and_all_new_tokens_but_the_last(core, prompt, new):
    """The last token is sampled and never written anywhere."""
    given = ledger_request(range(prompt), 1, new)
    opening = openings(given, core.nodes, tracks_of(core.graph))["ledger"]
    assert dict(opening.tokens) == dict.fromkeys(("kv", "state", "rows"), prompt + new - 1)
    assert opening.prompt_ids.tolist() == list(range(prompt))
    assert opening.settings["sampler"] is given.sampling


def test_asking_at_the_door_takes_nothing(core):
    before = core.held()
    check_request(
        ledger_request([1, 2], 1, 3), core.walks, tracks_of(core.graph), Limits(context=64)
    )
    openings(ledger_request([1, 2], 1, 3), core.nodes, tracks_of(core.graph))
    assert core.held() == before


@pytest.mark.parametrize(
    ("array", "fine"),
    [
        (np.zeros((4, 3, 2), np.float32), True),
        (np.zeros((4, 3, 2), np.int64), True),
        (np.zeros((4, 2, 3), np.float32), False),
        (np.zeros((3, 2), np.float32), False),
        (np.zeros((4, 3, 2), complex), False),
        (np.full((0, 3, 2), 1.0), False),
    ],
)
def test_items_have_the_shape_that_the_walk_declares(core, array, fine):
    request = Request(arrays={"frames": array}, max_new_tokens=1)
    tracks = tracks_of(Sequence((Once("encode"),)))
    if fine:
        check_request(request, {"encode": FRAMES}, tracks, Limits(context=64))
        return
    with pytest.raises(RequestError) as caught:
        check_request(request, {"encode": FRAMES}, tracks, Limits(context=64))
    assert caught.value.where == "arrays.frames"


@pytest.mark.parametrize(
    ("field", "prompt", "new"), [("max_prompt_tokens", 9, 2), ("max_new_tokens", 4, 6)]
)
def test_a_deployment_limits_prompts_and_answers(tmp_path, field, prompt, new):
    core, _ = open_ledger(tmp_path, (f"limits.{field}=5", "debug.conservation=true"))
    with pytest.raises(RequestError) as caught:
        core.submit(ledger_request(list(range(prompt)), 1, new))
    assert caught.value.where == field
    assert "at most 5" in caught.value.want
    core.submit(ledger_request([1, 2, 3], 1, 4))
    while core.turn():
        pass
    core.check_conserved()


def test_a_request_that_brings_nothing_for_an_optional_walk_passes_it_by():
    walks = {"encode": evolve(FRAMES, optional=True), "other": FRAMES}
    frames = np.zeros((1, 3, 2), np.float32)
    assert passed_by(Request(arrays={"frames": frames}), walks) == frozenset()
    without = passed_by(Request(arrays={"ids": np.zeros(1, np.int64)}), walks)
    assert without == {"encode"}
    cross = Walk(name="cross", node="n", feed="edge", edge="e", inputs=(), optional=True)
    out = Output(name="out", edge="e")
    fed = {"encode": evolve(FRAMES, optional=True, outputs=(out,)), "cross": cross}
    assert passed_by(Request(arrays={"ids": np.zeros(1, np.int64)}), fed) == {"encode", "cross"}
    assert passed_by(Request(arrays={"frames": frames}), fed) == frozenset()
    graph = Sequence((Once("encode"), Loop("decode")))
    assert [part.walk for part in tracks_of(graph, without)[0].parts] == ["decode"]
    stream = Stream(producer=graph, consumer=Once("voice"), edge="said")
    producer, consumer = tracks_of(Sequence((Once("encode"), stream)), without)
    assert [part.walk for part in producer.parts] == ["decode"]
    assert [part.walk for part in consumer.parts] == ["voice"]
