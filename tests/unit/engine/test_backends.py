"""Which backend computes an operation: the highest that applies, or the one that was asked for."""

import pytest
import torch
from attrs import evolve

from mstar_core.engine.backends import BackendChooser
from mstar_core.errors import ConfigError, Refusal
from mstar_core.ops.backend import Backend
from mstar_core.plugins.record import PluginRecord
from mstar_core.plugins.wiring import ActivePlugin, Wiring

WHY = Refusal(
    code="not-installed",
    where="backend sampling.fast",
    got="no library fastlib",
    want="fastlib 2.1 or newer",
    fix="pip install mstar-fast[fastlib]",
    owner="mstar-fast",
)


class Fast(Backend):
    """Cannot run here."""

    operation = "sampling"
    name = "fast"

    def available(self, device):
        return WHY

    def bind(self, request):
        raise AssertionError


class Plain(Backend):
    """Runs here, and binds its own name."""

    operation = "sampling"
    name = "plain"

    def supports(self, request):
        return None if request.dtype == torch.float32 else evolve(WHY, got=str(request.dtype))

    def bind(self, request):
        return "plain's record"


FAST, PLAIN = Fast(), Plain()


class Torn(Plain):
    """Its library is there, and cannot be loaded."""

    def bind(self, request):
        raise ImportError("undefined symbol: _ZN3c10")


class Careless(Plain):
    """Looks for what a request has not."""

    def supports(self, request):
        return request.geometry["width"]


class Large(Plain):
    """Wants more than there is."""

    def bind(self, request):
        raise torch.OutOfMemoryError


@pytest.fixture
def choose(monkeypatch):
    """``choose(settings, dtype, …)``: the core's sampling, ``plain`` before it, ``fast`` first.

    ``plain`` may be another in its place; ``prefers`` is what a plugin answers about it.
    """
    wiring = Wiring.of_core()
    wiring.backends.add("sampling", "fast", "fast.module:BACKEND", priority=90)
    wiring.backends.add(
        "sampling", "plain", "plain.module:BACKEND", priority=50, basis="12 us on a device"
    )
    loaded = {"fast": FAST}
    offers = wiring.backends.candidates("sampling")
    load = type(offers[0]).load
    monkeypatch.setattr(
        type(offers[0]), "load", lambda offer: loaded.get(offer.name) or load(offer)
    )

    def chooser(settings=None, dtype=torch.float32, plain=PLAIN, prefers=None):
        loaded["plain"] = plain
        if prefers is not None:
            record = PluginRecord(
                name="taste", distribution="mstar-taste", version="1", origin="path", module="taste"
            )
            hooks = {"choose_backend": prefers if callable(prefers) else lambda given: prefers}
            wiring.active["taste"] = ActivePlugin(record=record, hooks=hooks)
        return BackendChooser(
            wiring=wiring, device="cpu", dtype=dtype, settings={"text": settings or {}}
        )

    return chooser


def test_auto_takes_the_highest_that_applies_and_says_why_it_passed_others_over(choose):
    """CG-11"""
    chooser = choose()
    assert chooser.bind("text", "sampling", {}) == "plain's record"
    (choice,) = chooser.choices.values()
    assert (choice.name, choice.asked_for, choice.passed_over) == ("plain", "auto", (WHY,))


def test_auto_goes_on_to_the_next_where_a_backend_does_not_take_the_dtype(choose):
    chooser = choose(dtype=torch.float16)
    chooser.bind("text", "sampling", {"vocab_size": 8})
    (choice,) = chooser.choices.values()
    assert choice.name == "torch"
    assert [r.got for r in choice.passed_over] == ["no library fastlib", "torch.float16"]


def test_an_explicit_backend_that_does_not_apply_is_an_error_with_its_remedy(choose):
    """CG-11: never a silent fallback."""
    with pytest.raises(ConfigError) as raised:
        choose({"sampling": "fast"}).bind("text", "sampling", {})
    error = raised.value
    assert error.where == "nodes.text.backends.sampling"
    assert (error.got, error.fix) == ("fast", "pip install mstar-fast[fastlib]")
    assert "fastlib 2.1 or newer" in error.want


def test_a_backend_that_nobody_brings_is_an_error_with_the_nearest_and_the_way_to_get_it(choose):
    with pytest.raises(ConfigError) as raised:
        choose({"sampling": "plian"}).bind("text", "sampling", {})
    assert raised.value.want == "auto, or one of: fast, plain, torch"
    assert raised.value.fix == "write 'plain'; or install the plugin that brings it"


def test_an_operation_that_nobody_implements_is_an_error_with_the_nearest(choose):
    with pytest.raises(ConfigError) as raised:
        choose().bind("text", "samplings", {})
    assert raised.value.fix == "write 'sampling'"


def test_a_choice_says_what_its_rank_rests_on_and_who_stands_behind_it(choose):
    chooser = choose()
    chooser.bind("text", "sampling", {})
    (choice,) = chooser.choices.values()
    assert choice.rank == "priority 50, 12 us on a device"
    assert choice.behind == ("torch (priority 0)",)


@pytest.mark.parametrize(
    ("backend", "said"),
    [(Torn(), "ImportError: undefined symbol: _ZN3c10"), (Careless(), "KeyError: 'width'")],
)
def test_what_a_backend_raises_names_its_setting_and_its_plugin(choose, backend, said):
    with pytest.raises(ConfigError) as raised:
        choose(plain=backend).bind("text", "sampling", {})
    error = raised.value
    assert error.where == "nodes.text.backends.sampling"
    assert error.got.startswith("plain of ")
    assert error.got.endswith(f": {said}")
    assert isinstance(error.__cause__, (ImportError, KeyError))


def test_memory_that_a_backend_lacks_is_told_by_whoever_knows_what_it_is_for(choose):
    with pytest.raises(torch.OutOfMemoryError):
        choose(plain=Large()).bind("text", "sampling", {})


def test_a_plugin_prefers_one_of_those_that_apply_and_no_other(choose):
    chooser = choose(prefers="torch")
    chooser.bind("text", "sampling", {"vocab_size": 8})
    assert [choice.name for choice in chooser.choices.values()] == ["torch"]
    with pytest.raises(ConfigError) as raised:
        choose(prefers="tourch").bind("text", "sampling", {})
    error = raised.value
    assert error.where == "choose_backend of taste"
    assert (error.want, error.fix) == ("None, or one of: plain, torch", "write 'torch'")


def test_a_plugin_that_fails_to_prefer_any_is_warned_of(choose, caplog):
    def lost(arguments):
        raise RuntimeError("lost")

    chooser = choose(prefers=lost)
    assert chooser.bind("text", "sampling", {}) == "plain's record"
    assert "taste: choose_backend: RuntimeError: lost" in caplog.text
