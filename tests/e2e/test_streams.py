"""A producer and a consumer of one request at once, joined by an edge: a node that listens in."""

import pytest
import torch
from attrs import evolve

from mstar_core.engine import ItemsEvent, Result
from mstar_core.engine.device import Lag
from mstar_core.model.base import NodeSubmodule
from mstar_core.model.walks import Edge, Input, Loop, Node, Once, Output, Sequence, Stream, Walk
from mstar_core.resources.base import ResourceSpec
from mstar_core.testing.cores import open_model
from mstar_core.testing.ledger import LedgerModel, LedgerSubmodule, continuation, ledger_request

CAPACITY = 3


class Sender(LedgerSubmodule):
    """The ledger, sending what each decode step was given."""

    def forward(self, walk, inputs, plans):
        outputs = super().forward(walk, inputs, plans)
        if walk == "decode":
            outputs["sent"] = torch.stack([inputs["ids"], inputs["salt"]], -1)
        return outputs


class Listener(NodeSubmodule):
    """Keeps what it hears."""

    def __init__(self):
        super().__init__()
        self.heard = {}
        self.steps = 0

    def forward(self, walk, inputs, plans):
        self.steps += 1
        for token, salt in inputs["sent"].tolist():
            self.heard.setdefault(salt, []).append(token)
        return {"echoed": inputs["sent"]}


class RelayModel(LedgerModel):
    def nodes(self):
        (ledger,) = super().nodes()
        prefill, decode, *_ = ledger.walks
        sent = Output(name="sent", shape=(2,), edge="relay")
        fields = ("name", "node", "feed", "inputs", "samples")
        decode = Walk(
            outputs=(*decode.outputs, sent), **{name: getattr(decode, name) for name in fields}
        )
        listen = Walk(
            name="listen",
            node="listener",
            feed="edge",
            edge="relay",
            inputs=(Input(name="sent", shape=(2,)),),
            outputs=(Output(name="echoed", shape=(2,), read=True, told=True),),
        )
        heard = ResourceSpec(
            key="state",
            kind="state",
            options={"num_layers": 1, "blocks": {"hash": ((1,), torch.int64)}},
        )
        return (
            Node(name="ledger", walks=(prefill, decode), resources=ledger.resources),
            Node(name="listener", walks=(listen,), resources=(heard,)),
        )

    def edges(self):
        return (
            Edge(
                name="relay",
                source="decode",
                target="listen",
                input="sent",
                shape=(2,),
                dtype="int64",
                capacity=CAPACITY,
            ),
        )

    def graph(self):
        producer = Sequence((Once("prefill"), Loop("decode")))
        return Sequence((Stream(producer=producer, consumer=Once("listen"), edge="relay"),))

    def build_submodule(self, node, env):
        return Sender(env) if node == "ledger" else Listener()


EAGER = ("engine.graphs=off",)
RESIDENT = ("engine.graphs=recorder", "engine.capture.rows=[1,2]", "debug.row_check=true")
"""The producer reads device tables; a step of three rows, which no bucket holds, is eager."""


@pytest.fixture(
    params=[
        (way, depth, lag)
        for way in (EAGER, RESIDENT)
        for depth in (0, 1, 2, 3)
        for lag in (None, Lag(), Lag(3))
    ],
    ids=lambda p: f"{'resident' if p[0] is RESIDENT else 'eager'}-{p[1]}-{p[2]}",
)
def core(request, tmp_path):
    way, depth, lag = request.param
    sets = (*way, "engine.max_rows=3", "engine.max_context=64", f"engine.in_flight={depth}")
    core, report = open_model(f"{__name__}:RelayModel", tmp_path, sets, lag)
    yield core
    while core.turn():
        pass
    core.check_conserved()
    core.check_rows()
    assert core.fences.num_cooling == 0
    if way is RESIDENT:
        assert report.nodes[0].resident_walks == ("decode",)


def request(salt, new, **more):
    return ledger_request([salt, 2, 3], salt, new, id=f"r{salt}", **more)


def finish(core, given):
    events = played(core, given)
    return {one.id: Result.of(one.id, events[one.id]) for one in given}


def played(core, given):
    """The events of each request."""
    for one in given:
        core.submit(one)
    turns = 0
    while core.turn():
        turns += 1
        assert turns < 1000
    events = {one.id: [] for one in given}
    for event in core.drain():
        events[event.request].append(event)
    return events


def test_the_consumer_hears_every_token_in_order_and_the_request_ends_behind_it(core):
    given = [request(n, 5 + n) for n in range(1, 6)]
    found = finish(core, given)
    heard = core.nodes["listener"].submodule.heard
    for one in given:
        salt = int(one.arrays["salt"][0])
        tokens = continuation([salt, 2, 3], salt, one.max_new_tokens)
        assert (found[one.id].ids, found[one.id].finish_reason) == (tokens, "length")
        assert heard[salt] == tokens[:-1]


def test_a_request_that_sends_nothing_ends_all_the_same(core):
    found = finish(core, [request(1, 1)])
    assert found["r1"].ids == continuation([1, 2, 3], 1, 1)
    assert found["r1"].finish_reason == "length"


@pytest.mark.parametrize("stop_at", [0, 1, 4])
def test_a_stop_of_the_producer_ends_the_consumer_and_nobody_else(core, stop_at):
    """KV-17"""
    tokens = continuation([1, 2, 3], 1, 30)
    stop = tokens[stop_at]
    kept = tokens[: tokens.index(stop)]
    other = request(2, 12)
    found = finish(core, [request(1, 30, stop_ids=frozenset({stop})), other])
    assert (found["r1"].ids, found["r1"].finish_reason) == (kept, "stop")
    assert found["r2"].ids == continuation([2, 2, 3], 2, 12)
    heard = core.nodes["listener"].submodule.heard
    assert heard[2] == found["r2"].ids[:-1]
    assert heard.get(1, [])[: len(kept)] == kept[: len(heard.get(1, []))]


def test_a_producer_that_is_resident_puts_its_items_where_the_host_counts_them(tmp_path):
    """Rows come and go, and each goes round its ring; every place is checked."""
    rows = ("engine.max_rows=5", "engine.capture.rows=[2,5]")
    sets = (*RESIDENT, *rows, "engine.max_context=64", "engine.in_flight=2")
    core, _ = open_model(f"{__name__}:RelayModel", tmp_path, sets)
    given = [request(n, 3 + n % 7) for n in range(1, 24)]
    found = finish(core, given)
    for one in given:
        assert told(found[one.id]) == found[one.id].ids[:-1]
    counts, check = core.nodes["ledger"].tables.counts, core.stats()["row_check"]
    assert counts.whole_rows >= len(given) - 4
    assert counts.untouched_steps > counts.steps // 3, "what was made is counted on the device"
    assert (check["steps"], check["mismatches"]) == (counts.steps, 0)
    assert core.stats()["steady"] == 0, "each item may be what the consumer waits for"


def told(result):
    """The tokens that the consumer's output told."""
    return result.items["echoed"][:, 0].tolist() if result.items else []


def test_each_item_that_a_stream_was_given_is_told_once_and_before_the_end(core):
    given = [request(n, 5 + n) for n in range(1, 6)]
    for name, events in played(core, given).items():
        result = Result.of(name, events)
        assert told(result) == result.ids[:-1]
        assert any(isinstance(event, ItemsEvent) for event in events[:-2])


@pytest.mark.parametrize("stop_at", [0, 1, 4])
def test_nothing_is_told_of_steps_behind_a_stop(core, stop_at):
    """TT-02"""
    tokens = continuation([1, 2, 3], 1, 30)
    stop = frozenset({tokens[stop_at]})
    found = finish(core, [request(1, 30, stop_ids=stop), request(2, 12)])
    assert told(found["r1"]) == found["r1"].ids
    assert told(found["r2"]) == found["r2"].ids[:-1]


class ChunkedModel(RelayModel):
    """The same, whose consumer waits for two items at first, and then for three."""

    def edges(self):
        return tuple(evolve(edge, chunks=(2, 3)) for edge in super().edges())


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("new", [1, 2, 3, 4, 5, 6, 7, 12])
def test_a_consumer_waits_for_a_chunk_and_takes_what_is_left_at_the_end(tmp_path, new, depth):
    """TT-15: no item, one, a whole number of chunks, and one more or less."""
    sets = ("engine.max_rows=3", "engine.max_context=64", f"engine.in_flight={depth}")
    core, _ = open_model(f"{__name__}:ChunkedModel", tmp_path, sets)
    (events,) = played(core, [request(1, new)]).values()
    result = Result.of("r1", events)
    assert told(result) == result.ids[:-1] == continuation([1, 2, 3], 1, new)[:-1]
    sizes = [len(e.arrays["echoed"]) for e in events if isinstance(e, ItemsEvent)]
    whole, left = divmod(max(new - 3, 0), 3)
    assert sizes == [n for n in (min(new - 1, 2), *[3] * whole, left) if n]


@pytest.mark.parametrize("stop_at", [0, 1, 2, 4, 6])
@pytest.mark.parametrize("depth", [0, 2])
def test_a_stop_in_the_middle_of_a_chunk_ends_it(tmp_path, stop_at, depth):
    tokens = continuation([1, 2, 3], 1, 30)
    stop = frozenset({tokens[stop_at]})
    sets = ("engine.max_rows=3", "engine.max_context=64", f"engine.in_flight={depth}")
    core, _ = open_model(f"{__name__}:ChunkedModel", tmp_path, sets)
    found = finish(core, [request(1, 30, stop_ids=stop), request(2, 11)])
    assert told(found["r1"]) == found["r1"].ids == tokens[: tokens.index(*stop)]
    assert told(found["r2"]) == found["r2"].ids[:-1]
    core.check_conserved()
