"""What a model declares must fit together."""

import pytest
from attrs import evolve

from mstar_core.errors import ConfigError
from mstar_core.model.graph import check_graph
from mstar_core.model.walks import Input, Loop, Node, Once, Sequence, Walk

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
