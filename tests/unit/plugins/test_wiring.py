"""Asking hooks: each answer kept with its owner, combined by the rule that the spec names."""

import time

import pytest

from mstar_core.errors import ConfigError, PluginError, Refusal, SealedError
from mstar_core.hookspecs import RULES, Hooks, hook_names, rule_of
from mstar_core.plugins import load_plugins
from mstar_core.plugins.ask import Voice, ask_all
from mstar_core.plugins.registry import BackendRegistry, ModelRegistry
from mstar_core.plugins.wiring import Wiring


def no(code):
    return Refusal(code=code, where="here", got="that", want="this", fix="do it")


def voices(**answers):
    return [Voice(owner=name, call=lambda value=value: value) for name, value in answers.items()]


def failing(owner):
    def call():
        raise RuntimeError("lost")

    return Voice(owner=owner, call=call)


def test_union_joins_all_answers_whatever_the_order_of_plugins():
    one = ask_all("resident_walks", "union", voices(b=["y"], a=["x"], c=None))
    two = ask_all("resident_walks", "union", voices(c=None, a=["x"], b=["y"]))
    assert one.value == two.value == ("x", "y")


def test_all_agree_gives_the_one_answer_and_ignores_who_has_no_opinion():
    assert ask_all("combined_splits", "all_agree", voices(a=7, b=None, c=7)).value == 7


def test_all_agree_refuses_a_disagreement_naming_both():
    asked = ask_all("combined_splits", "all_agree", voices(b=8, a=7))
    assert asked.value is None
    assert asked.refusals[0].got == "a says 7, b says 8"


def test_any_refuses_keeps_every_reason_and_its_owner():
    asked = ask_all("capture_refusal", "any_refuses", voices(a=no("x"), b=None, c=no("y")))
    assert [(r.code, r.owner) for r in asked.refusals] == [("x", "a"), ("y", "c")]


def test_who_fails_to_answer_whether_to_capture_objects():
    asked = ask_all("capture_refusal", "any_refuses", [failing("a")])
    assert [(r.code, r.owner) for r in asked.refusals] == [("hook-raised", "a")]


def test_first_answer_goes_by_name_and_keeps_the_losers():
    asked = ask_all("choose_backend", "first_answer", voices(c="z", b="y", a=None))
    assert asked.value == "y"
    assert {a.plugin: a.value for a in asked.answers} == {"a": None, "b": "y", "c": "z"}


def test_one_raise_costs_one_answer_and_is_a_finding():
    asked = ask_all("resident_walks", "union", [failing("a"), *voices(b=["x"])])
    assert asked.value == ("x",)
    assert [(f.owner, f.got) for f in asked.findings] == [("a", "RuntimeError: lost")]


@pytest.mark.parametrize("answer", [7, "decode", True])
def test_an_answer_that_holds_no_items_is_a_finding_and_the_others_count(answer):
    asked = ask_all("resident_walks", "union", voices(a=answer, b=["x"]))
    assert asked.value == ("x",)
    (finding,) = asked.findings
    assert (finding.code, finding.owner, finding.where) == ("hook-answer", "a", "a: resident_walks")
    assert finding.got == f"the answer {answer!r}"


@pytest.mark.parametrize("hook", ["doctor_checks", "review_plan"])
def test_a_list_of_what_are_no_refusals_is_a_finding(hook):
    asked = ask_all(hook, "union", voices(a=["old driver"], b=[no("x")], c=[]))
    assert asked.value == (no("x"),)
    assert [(f.code, f.owner) for f in asked.findings] == [("hook-answer", "a")]


@pytest.mark.parametrize("answer", ["too wide", False, [no("x")]])
def test_who_says_something_else_than_a_refusal_objects(answer):
    asked = ask_all("capture_refusal", "any_refuses", voices(a=answer, b=None))
    assert [(r.code, r.owner) for r in asked.refusals] == [("hook-answer", "a")]


def test_an_interrupt_passes_through_a_question():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_all("stopping", "observe", [Voice(owner="a", call=interrupted)])


def test_an_answer_says_how_long_it_took():
    asked = ask_all("stopping", "observe", [Voice(owner="a", call=lambda: time.sleep(0.02))])
    assert 0.02 <= asked.answers[0].seconds < 2


def test_each_active_plugin_is_asked_with_its_share_of_the_arguments(site):
    site.install("tin", "@hookimpl\ndef capture_refusal(bucket):\n    return bucket\n")
    site.install("zinc", "@hookimpl\ndef capture_refusal():\n    return None\n")
    site.install("idle", "@hookimpl\ndef capture_refusal():\n    raise SystemExit\n")
    wiring = load_plugins(["tin", "zinc"])
    asked = wiring.ask("capture_refusal", node="text", bucket=no("wide"))
    assert [(r.code, r.owner) for r in asked.refusals] == [("wide", "tin")]
    assert [a.plugin for a in asked.answers] == ["tin", "zinc"]


def test_asking_while_sealed_raises_until_the_stop():
    wiring = Wiring.of_core()
    wiring.seal()
    with pytest.raises(SealedError, match="asked while the engine serves"):
        wiring.ask("resident_walks", node="text")
    wiring.unseal_for_stop()
    assert wiring.ask("stopping", reason="over").answers == ()


def test_a_question_that_is_no_hook_or_has_other_arguments_is_an_error():
    with pytest.raises(PluginError, match="resident_walks"):
        Wiring.of_core().ask("resident_walk", node="text")
    with pytest.raises(PluginError, match="the arguments node, bucket"):
        Wiring.of_core().ask("capture_refusal", node="text")


def test_every_hook_says_when_it_is_asked_what_to_do_its_rule_and_an_example():
    assert len(hook_names()) == 14
    for name in hook_names():
        text = getattr(Hooks, name).__doc__
        for line in ("Asked: ", "Do: ", "Rule: ", "Example: "):
            assert text.count(f"\n        {line}") == 1, (name, line)
        assert f"Rule: {rule_of(name)}" in text
        assert rule_of(name) in RULES


def test_every_rule_is_used_by_a_hook():
    assert {rule_of(name) for name in hook_names()} == set(RULES)


def test_candidates_come_by_priority_then_name():
    registry = BackendRegistry(owner="core 1")
    registry.add("sampling", "torch", "a.b:C")
    registry.add("sampling", "zeta", "a.b:D", priority=9)
    registry.add("sampling", "alpha", "a.b:E", priority=9, hardware=("cuda",))
    registry.add("linear", "torch", "a.b:F")
    names = [offer.name for offer in registry.candidates("sampling")]
    assert names == ["alpha", "zeta", "torch"]
    assert registry.operations() == ("linear", "sampling")


def test_an_unknown_name_in_a_registry_is_an_error_with_the_nearest():
    registry = BackendRegistry(owner="core 1")
    registry.add("sampling", "torch", "a.b:C")
    with pytest.raises(ConfigError) as raised:
        registry.resolve("sampling", "troch")
    assert raised.value.fix.startswith("write 'sampling.torch'")


def test_a_draft_that_is_not_adopted_leaves_no_trace():
    registry = ModelRegistry(owner="core 1")
    draft = registry.draft("tin 1")
    draft.add("x", "a.b:C")
    assert registry.entries == {}
    registry.adopt(draft)
    assert registry.entries["x"].owner == "tin 1"
    with pytest.raises(PluginError, match=r"claimed by tin 1 and by zinc 2"):
        registry.draft("zinc 2").add("x", "a.b:D")


def test_the_core_offers_its_own_through_the_same_registries():
    wiring = Wiring.of_core()
    assert set(wiring.resources.entries) >= {"kv", "attention", "position", "state", "sampler"}
    assert wiring.models.entries == {}
    assert [o.name for o in wiring.backends.candidates("paged_attention")] == ["torch"]
