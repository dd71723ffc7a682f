"""Who keeps a walk on the host, and in which words. Each refusal has a test of its own."""

import attrs
import numpy as np
import pytest

from mstar_core.engine.device import CpuDevice
from mstar_core.engine.opening import open_core
from mstar_core.engine.residence import walk_refusal
from mstar_core.errors import ConfigError
from mstar_core.model.walks import Output
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.base import Resource
from mstar_core.step import Plan
from mstar_core.testing.cores import open_ledger, open_model, run_all
from mstar_core.testing.ledger import (
    LedgerModel,
    LedgerSubmodule,
    continuation,
    ledger_request,
)
from mstar_core.testing.world import World

SETS = (
    "engine.max_rows=4",
    "engine.token_budget=32",
    "engine.max_context=64",
    "engine.graphs=recorder",
    "engine.capture.rows=[4]",
    "engine.capture.tokens=[16]",
)
ONE = np.ones(1, np.int64)


class NamesNone(LedgerSubmodule):
    def resident_walks(self):
        return frozenset()


class SilentLedger(LedgerModel):
    """Its submodule names no resident walk."""

    def build_submodule(self, node, env):
        return NamesNone(env)


class NamesBoth(LedgerSubmodule):
    def resident_walks(self):
        return frozenset({"prefill", "decode"})


class EagerLedger(LedgerModel):
    """Its submodule names a walk that is no decode, next to one that is."""

    def build_submodule(self, node, env):
        return NamesBoth(env)


class PlanOfNothing(Plan):
    pass


class Plain(Resource):
    """A resource of a kind that says nothing about device tables."""

    kind = "plain"
    key = "plain"

    @classmethod
    def build(cls, spec, env):
        return cls()

    def plan(self, step, lease, upstream):
        return PlanOfNothing()


def declaring(node, **spans):
    """The node, whose decode adds these many tokens of a row to each resource."""
    full = {"kv": 1, "state": 1, "rows": 1} | spans
    node.submodule.declare_step = lambda walk, spans_B: {k: spans_B * n for k, n in full.items()}
    return node


def right(core, *lengths):
    """Whether requests of these prompts get the ledger's tokens."""
    given = [ledger_request(range(n), n, 9, id=f"r{n}") for n in lengths]
    found = run_all(core, given)
    return all(found[f"r{n}"].ids == continuation(range(n), n, 9) for n in lengths)


@pytest.fixture
def node(tmp_path):
    """The ledger's node, built and warmed."""
    return open_ledger(tmp_path, SETS)[0].nodes["ledger"]


# By the resource


def test_a_resource_without_a_table_keeps_its_nodes_walks_on_the_host():
    refusal = Plain().resident_refusal("decode")
    assert refusal.code == "no-resident-columns"
    assert str(refusal) == (
        "resource plain, walk decode: a resource of kind plain without device columns; "
        "want a resource that implements Resident; "
        "fix: nothing to do: the walk is planned on the host [plain]"
    )


def test_attention_over_the_steps_own_rows_has_no_pool_to_read_off_tables():
    """A dense or bidirectional attention: it has no length that grows."""
    world = World()
    options = {"num_heads": 1, "num_kv_heads": 1, "head_dim": 4}
    refusal = world.build(AttentionResource, "dense", options).resident_refusal("decode")
    assert refusal.code == "no-pool"
    assert refusal.where == "resource dense, walk decode"
    assert refusal.got == "attention over the step's own rows, without a pool"
    assert refusal.owner == "dense"


# By the walk


def test_a_plain_decode_is_not_refused(node):
    assert walk_refusal(node, node.walks["decode"]) is None


def test_a_walk_that_is_fed_from_the_prompt_is_no_decode(node):
    refusal = walk_refusal(node, node.walks["prefill"])
    assert refusal.code == "not-a-plain-decode"
    assert str(refusal) == (
        "node ledger, walk prefill: rows that are fed from the prompt; "
        "want one looped item a row, which adds one token to each resource, or only reads a pool; "
        "fix: nothing to do: the walk is planned on the host [ledger]"
    )


def test_a_walk_that_is_fed_from_an_edge_is_no_decode(node):
    walk = attrs.evolve(node.walks["decode"], feed="edge", edge="frames")
    assert walk_refusal(node, walk).got == "rows that are fed from the edge"


def test_a_walk_that_puts_an_output_on_an_edge_is_not_refused(node):
    """The ring's places and counts are columns."""
    outputs = (*node.walks["decode"].outputs, Output(name="frame", edge="codes"))
    walk = attrs.evolve(node.walks["decode"], outputs=outputs)
    assert walk_refusal(node, walk) is None


def test_a_walk_that_adds_several_tokens_to_a_resource_is_planned_on_the_host(node):
    node = declaring(node, kv=2)
    assert walk_refusal(node, node.walks["decode"]).got == "rows that add 2 tokens to kv"


def test_a_pool_may_be_read_without_being_added_to(node):
    node = declaring(node, kv=0)
    assert walk_refusal(node, node.walks["decode"]) is None


def test_a_recurrent_state_that_is_only_read_is_planned_on_the_host(node):
    """Whether a slot that nobody wrote is fresh is known on the host alone."""
    node = declaring(node, state=0)
    assert walk_refusal(node, node.walks["decode"]).got == "rows that add 0 tokens to state"


@pytest.mark.parametrize("kind", ["position", "sampler", "gated_delta", "attention"])
def test_positions_sampler_and_mixers_are_resident_only_where_each_row_adds_its_token(kind):
    from mstar_core.plugins.builtin import core_registries

    _, resources, _ = core_registries()
    assert resources.resolve(kind).resident_adds == (1,)


def test_a_walk_over_a_resource_without_columns_is_planned_on_the_host(node):
    node = attrs.evolve(node, resources={**node.resources, "plain": Plain()})
    refusal = walk_refusal(node, node.walks["decode"])
    assert refusal.got == "plain, a resource without columns"


def test_a_walk_that_is_refused_leaves_the_nodes_other_walks_resident(tmp_path):
    core, report = open_model(f"{__name__}:EagerLedger", tmp_path, SETS)
    (found,) = report.nodes
    assert found.resident_walks == ("decode",)
    assert [r.where for r in found.resident_refusals] == ["node ledger, walk prefill"]
    assert right(core, 3, 5)
    assert core.nodes["ledger"].tables.counts.steps > 0


# By the configuration


def test_residence_that_is_switched_off_says_so(tmp_path):
    core, report = open_ledger(tmp_path, (*SETS, "engine.resident=off"))
    (found,) = report.nodes
    assert found.resident_walks == ()
    (refusal,) = found.resident_refusals
    assert (refusal.code, refusal.got) == ("resident-off", "engine.resident: off")
    assert refusal.owner == "config"
    assert core.nodes["ledger"].planner is None
    assert right(core, 3, 5)
    assert core.stats()["replayed"] > 0


def test_residence_without_graphs_says_that_every_step_runs_eagerly(tmp_path):
    core, report = open_ledger(tmp_path, (*SETS, "engine.graphs=off"))
    (found,) = report.nodes
    (refusal,) = found.resident_refusals
    assert refusal.code == "resident-off"
    assert refusal.got == "no graphs: every step runs eagerly"
    assert core.nodes["ledger"].planner is None
    assert right(core, 3, 5)


def test_the_report_that_a_person_reads_names_who_refused(tmp_path):
    _, report = open_ledger(tmp_path, (*SETS, "engine.resident=off"))
    assert any("resident" in line and "config" in line for line in report.lines())


def test_there_is_no_setting_for_the_size_of_the_tables(tmp_path):
    """It follows from the widest capture: a name that asks for one is unknown."""
    with pytest.raises(ConfigError, match="resident_slots"):
        open_ledger(tmp_path, (*SETS, "engine.resident_slots=8"))


# By plugins


def opened_with(plugin, tail, ref):
    plugin("named", ref=f"{__name__}:{ref}", tail=tail)
    core, _, report = open_core("named", ("device=cpu", *SETS), device=CpuDevice(), offline=True)
    return core, report.nodes[0]


def test_a_model_that_names_no_walk_is_not_resident_and_nothing_is_refused(tmp_path):
    core, report = open_model(f"{__name__}:SilentLedger", tmp_path, SETS)
    assert report.nodes[0].resident_walks == ()
    assert report.nodes[0].resident_refusals == ()
    assert right(core, 3, 5)


def test_a_plugin_may_name_a_walk_that_the_model_does_not(plugin):
    hook = "@hookimpl\ndef resident_walks(node):\n    return ['decode']\n"
    core, found = opened_with(plugin, hook, "SilentLedger")
    assert found.resident_walks == ("decode",)
    assert right(core, 3, 5)
    assert core.nodes["ledger"].tables.counts.steps > 0


def test_a_plugin_that_names_a_walk_which_is_no_decode_is_answered_in_words(plugin):
    hook = "@hookimpl\ndef resident_walks(node):\n    return ['prefill']\n"
    core, found = opened_with(plugin, hook, "SilentLedger")
    assert found.resident_walks == ()
    assert [r.got for r in found.resident_refusals] == ["rows that are fed from the prompt"]
    assert right(core, 3, 5)


def test_a_plugin_that_names_an_unknown_walk_ends_the_start(plugin):
    hook = "@hookimpl\ndef resident_walks(node):\n    return ['decoed']\n"
    with pytest.raises(ConfigError) as raised:
        opened_with(plugin, hook, "SilentLedger")
    assert raised.value.where == "node ledger: resident_walks of named"
    assert raised.value.fix == "write 'decode'"
