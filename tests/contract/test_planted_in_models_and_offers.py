"""More planted faults: in a model's forward, in how a backend answers, in what a plugin says."""

from typing import Any

import pytest
import torch
from attrs import evolve

from mstar_core.errors import MstarError, Refusal
from mstar_core.ops.linear.torch_backend import TorchLinear
from mstar_core.plugins import Wiring
from mstar_core.plugins.load import load_one
from mstar_core.testing import LinearContract, ModelContract
from mstar_core.testing.contracts.opened import Opened
from mstar_core.testing.cores import LEDGER, open_wired
from mstar_core.testing.ledger import LedgerModel, LedgerSubmodule, continuation, ledger_request

# Models


class KeepsAStaleState(LedgerSubmodule):
    def _roll(self, mixed_T, rows, state):
        return super()._roll(mixed_T, rows, evolve(state, fresh_B=torch.zeros_like(state.fresh_B)))


class ReadsBeyondTheLength(LedgerSubmodule):
    def _seen(self, kv):
        width = kv.pages_BW.shape[1] * self.v_PpGD.shape[1]
        return super()._seen(evolve(kv, kv_lens_B=torch.full_like(kv.kv_lens_B, width)))


class SharesTheFirstRowsState(LedgerSubmodule):
    def _roll(self, mixed_T, rows, state):
        first = state.slots_B[:1].expand_as(state.slots_B)
        return super()._roll(mixed_T, rows, evolve(state, slots_B=first))


class CountsEachChunkFromZero(LedgerSubmodule):
    def forward(self, walk, inputs, plans):
        if walk == "prefill":
            kv: Any = plans["kv"]
            plans = {**plans, "kv": evolve(kv, before_B=torch.zeros_like(kv.before_B))}
        return super().forward(walk, inputs, plans)


class Stale(LedgerModel):
    def build_submodule(self, node, env):
        return KeepsAStaleState(env)


class Beyond(LedgerModel):
    def build_submodule(self, node, env):
        return ReadsBeyondTheLength(env)


class Shared(LedgerModel):
    def build_submodule(self, node, env):
        return SharesTheFirstRowsState(env)


class Recounting(LedgerModel):
    def build_submodule(self, node, env):
        return CountsEachChunkFromZero(env)


class LedgerContract(ModelContract):
    ref = LEDGER

    def open(self, folder, *sets, lag=None):
        small = ("engine.max_rows=4", "engine.token_budget=64", "engine.max_context=64")
        core, wired, report = open_wired(self.ref, folder, (*small, *sets), lag)
        return Opened(core=core, wired=wired, report=report)

    def requests(self, front):
        return [ledger_request(range(3 + 9 * i), i, 4) for i in range(3)]

    def oracle(self, request):
        ids, salt = request.arrays["ids"].tolist(), int(request.arrays["salt"][0])
        return continuation(ids, salt, request.max_new_tokens)


MODEL_FAULTS = [
    (Stale, "test_what_a_request_gave_back_shows_nothing_to_the_next", {}),
    (
        Beyond,
        "test_memory_that_nobody_wrote_is_not_read",
        {"fill": 1e3, "way": ("engine.graphs=off",)},
    ),
    (Shared, "test_company_changes_no_token", {}),
    (Recounting, "test_chunks_change_no_token", {"budget": 7, "way": ("engine.graphs=off",)}),
]


@pytest.mark.parametrize(("model", "check", "given"), MODEL_FAULTS)
def test_a_fault_of_a_model_fails_its_check(tmp_path, model, check, given):
    sound = LedgerContract()
    alone = [sound.oracle(request) for request in sound.requests(None)]
    getattr(sound, check)(alone=alone, tmp_path=tmp_path / "sound", **given)
    faulty = type("Kit", (LedgerContract,), {"ref": f"{__name__}:{model.__name__}"})()
    with pytest.raises(AssertionError):
        getattr(faulty, check)(alone=alone, tmp_path=tmp_path / "faulty", **given)


# Backends


class Raises(TorchLinear):
    def available(self, device):
        return {"cpu": None}[device]


class IsMute(TorchLinear):
    def supports(self, request):
        return Refusal(code="no", where="here", got="that", want="", fix="")


class SaysNo(TorchLinear):
    def available(self, device):
        return False


class ImportsALibrary(TorchLinear):
    def available(self, device):
        import wheel_of_a_kernel_library  # noqa: F401


class BindsSomethingElse(TorchLinear):
    def bind(self, request):
        return lambda x: x


class HasTwoNames(TorchLinear):
    operation = "lineal"


BACKEND_FAULTS = [
    (Raises, "test_available_answers_and_never_raises", {"device": "cuda"}),
    (SaysNo, "test_available_answers_and_never_raises", {"device": "cuda"}),
    (IsMute, "test_supports_answers_and_never_raises", {"geometry": {}, "dtype": torch.float64}),
    (ImportsALibrary, "test_asking_imports_no_library", {}),
    (BindsSomethingElse, "test_bind_gives_the_record_of_the_contract", {}),
    (HasTwoNames, "test_it_says_what_it_is", {}),
]


@pytest.mark.parametrize(("cls", "check", "given"), BACKEND_FAULTS)
def test_a_backend_without_manners_fails_its_check(tmp_path, monkeypatch, cls, check, given):
    (tmp_path / "wheel_of_a_kernel_library.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    def run(backend):
        getattr(type("Kit", (LinearContract,), {"backend": backend})(), check)(**given)

    run(TorchLinear())
    with pytest.raises((AssertionError, KeyError)):
        run(cls())


# Plugins

HOOK = "\n@hookimpl\ndef {}:\n    pass\n"
PLUGIN_FAULTS = {
    "tall": ({"tail": "\n" * 40}, "test_its_module_is_short", "40 are enough"),
    "misspells": (
        {"tail": HOOK.format("stoping(reason)")},
        "test_every_hook_is_spelled_as_the_core_spells_it",
        "stoping",
    ),
    "more": (
        {
            "tail": HOOK.format("provide_backends(registry)").replace(
                "pass", 'registry.add("linear", "more", "more.x:B")'
            )
        },
        "test_the_manifest_offers_what_is_registered",
        "linear.more",
    ),
    "prints": ({"head": "print('hello')"}, "test_it_loads_without_torch", "prints"),
    "dangles": ({"ref": "dangles.model:Missing"}, "test_every_offer_is_what_it_says", "dangles"),
    "pretends": (
        {"ref": "collections:OrderedDict"},
        "test_every_offer_is_what_it_says",
        "pretends",
    ),
    "mistakes": (
        {"config": "engine: {max_row: 3}\n"},
        "test_every_config_it_ships_resolves",
        "max_row",
    ),
    "misdeclares": ({"claims": "[renamed]\nx = 3\n"}, "test_it_fits_this_core", "renamed"),
}
"""Plugin → what is wrong with it, the check that fails, a word of its message."""


def plugin_check(contract, record, name):
    check = getattr(contract, name)
    takes = check.__code__.co_varnames[: check.__code__.co_argcount]
    given = {"record": record, "manifest": record.manifest}
    if "wiring" in takes:
        given["wiring"] = Wiring.of_core()
        load_one(record, given["wiring"], None)
    check(**{argument: given[argument] for argument in takes if argument in given})


@pytest.mark.parametrize("name", PLUGIN_FAULTS)
def test_a_fault_of_a_plugin_fails_its_check(plugin, name):
    parts, check, word = PLUGIN_FAULTS[name]
    plugin_check(*plugin("sound"), check)
    with pytest.raises((AssertionError, MstarError), match=word):
        plugin_check(*plugin(name, **parts), check)
