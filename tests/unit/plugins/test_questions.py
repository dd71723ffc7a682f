"""Residence, splits and captures: objects and plugins answer, the core checks and combines."""

import pytest
from attrs import frozen

from mstar_core.errors import ConfigError, Refusal
from mstar_core.plugins import (
    collect_capture_refusals,
    collect_combined_splits,
    collect_resident_walks,
    load_plugins,
)
from mstar_core.plugins.wiring import Wiring
from mstar_core.step.split import CombinedSplit

SPLIT = "from mstar_core.step.split import CombinedSplit\n"


@frozen
class Node:
    walks: tuple = ()

    def resident_walks(self):
        return self.walks


@frozen
class Thing:
    """A resource or backend with scripted answers."""

    refuses: tuple = ()
    splits: tuple = ()

    def resident_refusal(self, walk):
        return self._no(walk) if walk in self.refuses else None

    def capture_refusal(self, bucket):
        return self._no(bucket) if bucket in self.refuses else None

    def combined_splits(self):
        return self.splits

    def _no(self, what):
        return Refusal(code="no", where=what, got="that", want="this", fix="do it")


class Failing(Thing):
    def resident_refusal(self, walk):
        raise RuntimeError("lost")

    capture_refusal = resident_refusal


def split(walk="mixed", prefill=("prefill",), rows=8):
    return CombinedSplit(
        walk=walk, decode_walks=("decode",), prefill_walks=prefill, max_decode_rows=rows
    )


def test_resident_walks_are_the_union_of_submodule_and_plugins(site):
    site.install("tin", "@hookimpl\ndef resident_walks(node):\n    return ('talk',)\n")
    walks, refusals = collect_resident_walks(
        load_plugins(["tin"]), "text", Node(("decode",)), {"kv": Thing()}, ("decode", "talk")
    )
    assert walks == {"decode", "talk"}
    assert refusals == ()


def test_any_veto_leaves_a_walk_on_the_host_and_every_reason_is_kept():
    resources = {"kv": Thing(("decode",)), "state": Thing(("decode",)), "position": Thing()}
    walks, refusals = collect_resident_walks(
        Wiring.of_core(), "text", Node(("decode", "talk")), resources, ("decode", "talk")
    )
    assert walks == {"talk"}
    assert [(r.owner, r.where) for r in refusals] == [("kv", "decode"), ("state", "decode")]


def test_a_resource_that_fails_to_answer_vetoes():
    walks, refusals = collect_resident_walks(
        Wiring.of_core(), "text", Node(("decode",)), {"kv": Failing()}, ("decode",)
    )
    assert walks == frozenset()
    assert refusals[0].got == "RuntimeError: lost"


def test_an_unknown_resident_walk_is_an_error_that_names_who_and_the_nearest(site):
    site.install("tin", "@hookimpl\ndef resident_walks(node):\n    return ['decoed']\n")
    with pytest.raises(ConfigError) as raised:
        collect_resident_walks(load_plugins(["tin"]), "text", Node(), {}, ("decode", "prefill"))
    assert raised.value.where == "node text: resident_walks of tin"
    assert raised.value.fix == "write 'decode'"


def test_a_plugin_that_fails_adds_no_resident_walk_and_is_reported(site):
    site.install("tin", "@hookimpl\ndef resident_walks(node):\n    return 1 / 0\n")
    walks, refusals = collect_resident_walks(
        load_plugins(["tin"]), "text", Node(("decode",)), {"kv": Thing()}, ("decode",)
    )
    assert walks == {"decode"}
    assert [(r.owner, r.code) for r in refusals] == [("tin", "hook-raised")]


def test_a_split_that_all_agree_about_is_taken(site):
    code = """
@hookimpl
def combined_splits(node):
    return [CombinedSplit(walk="mixed", decode_walks=("decode",), prefill_walks=("prefill",),
                          max_decode_rows=8)]
"""
    site.install("tin", SPLIT + code)
    splits, refusals = collect_combined_splits(
        load_plugins(["tin"]),
        "text",
        {"attention": Thing(splits=(split(),)), "kv": Thing()},
        {"mixed": ("prefill",)},
    )
    assert splits == {"mixed": split()}
    assert refusals == ()


@pytest.mark.parametrize("order", [("attention", "delta"), ("delta", "attention")])
def test_splits_that_disagree_are_refused_naming_both(order):
    answers = {"attention": Thing(splits=(split(),)), "delta": Thing(splits=(split(rows=4),))}
    splits, refusals = collect_combined_splits(
        Wiring.of_core(), "text", {key: answers[key] for key in order}, {"mixed": ("prefill",)}
    )
    assert splits == {}
    assert [(r.code, r.owner) for r in refusals] == [("splits-disagree", "attention, delta")]


def test_a_split_that_misses_a_walk_of_several_tokens_is_refused():
    resources = {"attention": Thing(splits=(split(),))}
    splits, refusals = collect_combined_splits(
        Wiring.of_core(), "text", resources, {"mixed": ("prefill", "image")}
    )
    assert splits == {}
    assert refusals[0].code == "split-misses-walk"
    assert "without image" in refusals[0].got


def test_a_split_of_an_unknown_walk_is_an_error_with_the_nearest():
    resources = {"attention": Thing(splits=(split("mixd"),))}
    with pytest.raises(ConfigError) as raised:
        collect_combined_splits(Wiring.of_core(), "text", resources, {"mixed": ()})
    assert raised.value.fix == "write 'mixed'"


@pytest.mark.parametrize("answer", [7, "mixed", split()])
def test_what_is_no_list_of_splits_is_refused_naming_who_said_it(answer):
    resources = {"attention": Thing(splits=(split(),)), "delta": Thing(splits=answer)}
    splits, refusals = collect_combined_splits(
        Wiring.of_core(), "text", resources, {"mixed": ("prefill",)}
    )
    assert splits == {"mixed": split()}
    assert [(r.code, r.owner) for r in refusals] == [("hook-answer", "delta")]


def test_what_is_no_split_and_no_walk_is_an_error_that_shows_it():
    with pytest.raises(ConfigError) as raised:
        collect_combined_splits(
            Wiring.of_core(), "text", {"kv": Thing(splits=("mixd",))}, {"mixed": ()}
        )
    assert (raised.value.got, raised.value.fix) == ("mixd", "write 'mixed'")
    with pytest.raises(ConfigError) as raised:
        collect_resident_walks(Wiring.of_core(), "text", Node((7,)), {}, ("decode",))
    assert raised.value.got == "7"


def test_every_objection_to_a_capture_is_collected(site):
    code = """
from mstar_core.errors import Refusal
@hookimpl
def capture_refusal(node, bucket):
    return Refusal(code="policy", where=node, got=bucket, want="less", fix="nothing")
"""
    site.install("tin", code)
    refusals = collect_capture_refusals(
        load_plugins(["tin"]),
        "text",
        "decode 64x64",
        {"kv": Thing(("decode 64x64",)), "position": Thing()},
        {"sampling.torch": Failing()},
    )
    assert [r.owner for r in refusals] == ["kv", "sampling.torch", "tin"]


def test_no_objection_is_no_refusal():
    refusals = collect_capture_refusals(
        Wiring.of_core(), "text", "decode 1x1", {"kv": Thing()}, {"linear.torch": Thing()}
    )
    assert refusals == ()
