"""What a model declares must fit together."""

import pytest
from attrs import evolve

from mstar_core.errors import ConfigError
from mstar_core.model.graph import check_graph
from mstar_core.model.walks import Edge, Input, Loop, Node, Once, Output, Sequence, Walk

INPUTS = (Input(name="ids", loops=True),)
PREFILL = Walk(name="prefill", node="n", feed="prompt", inputs=INPUTS)
DECODE = Walk(name="decode", node="n", feed="loop", inputs=INPUTS)
MIXED = Walk(name="mixed", node="n", feed="rows", inputs=INPUTS, combines=("decode", "prefill"))


def check(mixed, *others):
    graph = Sequence((Once("prefill"), Loop("decode")))
    check_graph((Node(name="n", walks=(PREFILL, DECODE, mixed, *others)),), (), graph)


def test_a_walk_may_combine_a_loop_with_prompts():
    check(MIXED)


@pytest.mark.parametrize(
    "changes",
    [
        {"combines": ()},
        {"combines": ("decode",)},
        {"combines": ("prefill",)},
        {"combines": ("decode", "missing")},
        {"combines": ("decode", "prefill", "mixed")},
        {"feed": "prompt"},
        {"inputs": (Input(name="ids"),)},
        {"inputs": ()},
        {"node": "m"},
    ],
    ids=str,
)
def test_a_walk_that_combines_what_is_not_alike_is_refused(changes):
    with pytest.raises(ConfigError) as caught:
        check(evolve(MIXED, **changes))
    assert caught.value.where == "walk mixed.combines"


def test_a_graph_that_names_a_walk_nobody_declares_is_refused():
    with pytest.raises(ConfigError, match="walk 'decode'"):
        check_graph((Node(name="n", walks=(PREFILL,)),), (), Sequence((Loop("decode"),)))


@pytest.mark.parametrize("changes", [{"feed": "prompt", "edge": None}, {"read": False}], ids=str)
def test_items_are_told_of_what_is_read_of_a_streams_consumer_only(changes):
    said = Edge(name="said", source="decode", target="voice", input="said", shape=())
    heard = Output(name="sound", read=changes.pop("read", True), told=True)
    voice = Walk(
        name="voice", node="n", feed="edge", edge="said", inputs=(Input(name="said"),),
        outputs=(heard,),
    )  # fmt: skip
    graph = Sequence((Once("prefill"), Loop("decode")))

    def checked(walk):
        check_graph((Node(name="n", walks=(PREFILL, DECODE, walk)),), (said,), graph)

    if heard.read:
        checked(voice)
    with pytest.raises(ConfigError, match="output sound"):
        checked(evolve(voice, **changes))
    with pytest.raises(ConfigError, match="a dtype of numbers"):
        checked(evolve(voice, outputs=(evolve(heard, read=True, dtype="bool"),)))


@pytest.mark.parametrize("changes", [{"feed": "loop"}, {"samples": True}], ids=str)
def test_only_a_walk_of_the_prompt_that_samples_nothing_may_be_passed_by(changes):
    recall = Walk(name="recall", node="n", feed="prompt", inputs=INPUTS, optional=True)
    check(MIXED, recall)
    with pytest.raises(ConfigError, match=r"recall\.optional"):
        check(MIXED, evolve(recall, **changes))


@pytest.mark.parametrize("chunks", [(), (0,), (1, 5), (5,)], ids=str)
def test_a_chunk_that_no_edge_could_hold_is_refused(chunks):
    edge = Edge(
        name="said", source="decode", target="x", input="y", shape=(), capacity=4, chunks=chunks
    )
    graph = Sequence((Once("prefill"), Loop("decode")))
    with pytest.raises(ConfigError, match="capacity, 4"):
        check_graph((Node(name="n", walks=(PREFILL, DECODE)),), (edge,), graph)
