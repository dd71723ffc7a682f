"""The kit against planted faults: each fails the check that is about it, and its twin passes.

================================  ==============  ==============================================
the fault                         Contract of     test_… that fails
================================  ==============  ==============================================
room that takes                   Resource        asking_changes_nothing
close twice                       Resource        close_is_idempotent
slot not zeroed                   GatedDelta      a_step_is_the_recurrence_of_each_row
padding row writes a live slot    Resource        padding_is_the_same_in_every_step
length off by one at a page edge  Resource        a_stream_cut_anywhere_is_placed_the_same
page freed in flight              Resource        what_was_given_back_waits_for_its_fence
transposed state                  GatedDelta      any_length_leaves_the_state_of_the_recurrence
gate in the wrong domain          GatedDelta      decays_of_one_and_of_almost_zero_are_exact
stale conv window                 GatedDelta      a_stream_may_be_cut_anywhere
mask ignored                      PagedAttention  attention_is_the_softmax_of_each_query_alone
plan holding a list               Resource        a_plan_holds_arrays_and_ints_only
untrue manifest claim             Plugin          every_claim_in_the_manifest_is_true
torch at import                   Plugin          it_loads_without_torch
hook in a step                    Model           no_hook_is_asked_in_a_step
leak on abort                     Resource        a_request_that_took_no_step_leaves_nothing
================================  ==============  ==============================================
"""

from functools import partial
from typing import Any

import pytest
import torch
from attrs import evolve, frozen

from mstar_core.ops.gated_delta import GdnPools
from mstar_core.ops.gated_delta import cases as delta_cases
from mstar_core.ops.gated_delta.torch_backend import TorchGatedDelta
from mstar_core.ops.paged_attention import cases as attention_cases
from mstar_core.ops.paged_attention.torch_backend import TorchPagedAttention
from mstar_core.plugins import Wiring
from mstar_core.resources.kv import KVResource
from mstar_core.resources.state import StateResource
from mstar_core.testing import (
    GatedDeltaContract,
    ModelContract,
    PagedAttentionContract,
    ResourceContract,
    World,
)
from mstar_core.testing.contracts.opened import Opened
from mstar_core.testing.cores import LEDGER, open_wired
from mstar_core.testing.ledger import LedgerModel, LedgerSubmodule, ledger_request

# Resources


class RoomTakes(KVResource):
    def room(self, step):
        short = super().room(step)
        if short is None:
            self.take(step)
        return short


class OpeningTakesWhenAsked(StateResource):
    def can_open(self, opening):
        short = super().can_open(opening)
        if short is None:
            self.ids.take(1)
        return short


class ClosesTwice(KVResource):
    def close(self, handle, fence):
        held = self.table.num_held[handle]
        super().close(handle, fence)
        self.table.num_held[handle] = held - 1


class LeaksOnAbort(StateResource):
    def close(self, handle, fence):
        if self.started[handle]:
            super().close(handle, fence)


class FreesAPageInFlight(KVResource):
    def close(self, handle, fence):
        super().close(handle, -1)


class FreesASlotInFlight(StateResource):
    def close(self, handle, fence):
        super().close(handle, -1)


class KeepsTheOldSlotFresh(StateResource):
    def close(self, handle, fence):
        started = self.started[handle]
        super().close(handle, fence)
        if started:
            self.leftover = handle

    def plan(self, step, lease, upstream):
        plan = super().plan(step, lease, upstream)
        if hasattr(self, "leftover"):
            plan.fresh_B[step.handles_B == self.leftover] = False
        return plan


class PlansAList(StateResource):
    def plan(self, step, lease, upstream):
        plan = super().plan(step, lease, upstream)
        object.__setattr__(plan, "slots_B", plan.slots_B.tolist())
        return plan


class PadsWithALiveSlot(StateResource):
    def plan(self, step, lease, upstream):
        plan = super().plan(step, lease, upstream)
        plan.slots_B[step.num_rows :] = plan.slots_B[:1]
        return plan


class PlansTheStepsOwnShape(StateResource):
    def plan(self, step, lease, upstream):
        return super().plan(step, None, upstream)


class IsOffByOneAtAPageEdge(KVResource):
    def commit(self, step):
        super().commit(step)
        length = self.table.length[step.handles_B]
        self.table.length[step.handles_B] = length - (length % self.page_tokens == 0)


class PromisesNothing(KVResource):
    def open(self, handle, opening):
        """Admission by what is free now."""


STATE = {"num_layers": 1, "blocks": {"s": ((2,), torch.float32)}}
KV = {"num_layers": 1, "num_kv_heads": 1, "head_dim": 2}


def resource_check(cls, name):
    """Run one check of the resource contract on ``cls``."""
    pages = issubclass(cls, KVResource)

    class Contract(ResourceContract):
        key = "it"
        stream_fields = ("write_T",) if pages else ()

        def build(self, world):
            world.build(
                cls, "it", *((KV, {"page_tokens": 8, "num_pages": 4}) if pages else (STATE,))
            )

    world, contract = World(max_rows=4, max_context=16), Contract()
    contract.build(world)
    check = getattr(contract, name)
    takes = check.__code__.co_varnames[: check.__code__.co_argcount]
    given = {"world": world, "rows": 2, "spans": [5, 1]}
    check(**{argument: given[argument] for argument in takes if argument in given})


RESOURCE_FAULTS = [
    (RoomTakes, "test_asking_changes_nothing"),
    (OpeningTakesWhenAsked, "test_asking_changes_nothing"),
    (ClosesTwice, "test_close_is_idempotent"),
    (LeaksOnAbort, "test_a_request_that_took_no_step_leaves_nothing"),
    (FreesAPageInFlight, "test_what_was_given_back_waits_for_its_fence"),
    (FreesASlotInFlight, "test_what_was_given_back_waits_for_its_fence"),
    (KeepsTheOldSlotFresh, "test_a_handle_that_is_used_again_starts_afresh"),
    (PlansAList, "test_a_plan_holds_arrays_and_ints_only"),
    (PadsWithALiveSlot, "test_padding_is_the_same_in_every_step"),
    (PlansTheStepsOwnShape, "test_a_leased_plan_is_shaped_like_the_padding_plan"),
    (IsOffByOneAtAPageEdge, "test_a_stream_cut_anywhere_is_placed_the_same"),
    (PromisesNothing, "test_an_admitted_request_always_has_room"),
]


@pytest.mark.parametrize(("cls", "check"), RESOURCE_FAULTS, ids=lambda x: getattr(x, "__name__", x))
def test_a_fault_of_a_resource_fails_its_check(cls, check):
    resource_check(StateResource if issubclass(cls, StateResource) else KVResource, check)
    with pytest.raises((AssertionError, AttributeError)):
        resource_check(cls, check)


# Backends


def slot_not_zeroed(step, qkv, z, b, a, weights, pools, plan):
    return step(qkv, z, b, a, weights, pools, evolve(plan, fresh_B=torch.zeros_like(plan.fresh_B)))


def state_transposed(step, qkv, z, b, a, weights, pools, plan):
    o = step(qkv, z, b, a, weights, pools, plan)
    state = pools.ssm_SHDE[plan.slots_B]
    pools.ssm_SHDE[plan.slots_B] = state.transpose(-1, -2).reshape(state.shape)
    return o


def gate_in_the_wrong_domain(step, qkv, z, b, a, weights, pools, plan):
    return step(qkv, z, b, a, evolve(weights, A_log_H=weights.A_log_H.exp()), pools, plan)


def conv_window_stale(step, qkv, z, b, a, weights, pools, plan):
    copy = GdnPools(conv_SCK=pools.conv_SCK.clone(), ssm_SHDE=pools.ssm_SHDE)
    return step(qkv, z, b, a, weights, copy, plan)


def mask_ignored(attend, q, k, v, plan, *, scale, causal):
    width = torch.full_like(plan.kv_lens_B, plan.pages_BW.shape[1] * k.shape[1])
    return attend(q, k, v, evolve(plan, kv_lens_B=width), scale=scale, causal=causal)


@frozen
class Faulty:
    """A backend with one of its functions replaced by ``fault(function, …)``."""

    sound: Any
    field: str
    fault: Any
    name = "faulty"

    @property
    def operation(self):
        return self.sound.operation

    def available(self, device):
        return None

    def supports(self, request):
        return self.sound.supports(request)

    def bind(self, request):
        record = self.sound.bind(request)
        return evolve(record, **{self.field: partial(self.fault, getattr(record, self.field))})


DELTA = {case.name: case for case in delta_cases.CASES}
ATTENTION = {case.name: case for case in attention_cases.CASES}
IN_FULL = {"dtype": torch.float32}
BACKEND_FAULTS = [
    (
        slot_not_zeroed,
        "test_a_step_is_the_recurrence_of_each_row",
        {"case": DELTA["one-fresh-token"], **IN_FULL},
    ),
    (
        state_transposed,
        "test_any_length_leaves_the_state_of_the_recurrence",
        {"block": range(1, 70, 30)},
    ),
    (
        gate_in_the_wrong_domain,
        "test_decays_of_one_and_of_almost_zero_are_exact",
        {"gate": (-40.0, 0.0)},
    ),
    (conv_window_stale, "test_a_stream_may_be_cut_anywhere", {"cut": 63}),
    (
        mask_ignored,
        "test_attention_is_the_softmax_of_each_query_alone",
        {"case": ATTENTION["decode"], **IN_FULL},
    ),
]


@pytest.mark.parametrize(
    ("fault", "check", "given"), BACKEND_FAULTS, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_fault_of_a_backend_fails_its_check(fault, check, given):
    if fault is mask_ignored:
        sound, name, contract = TorchPagedAttention(), "attend", PagedAttentionContract
    else:
        sound, name, contract = TorchGatedDelta(), "step", GatedDeltaContract

    def kit(backend):
        return type("Kit", (contract,), {"backend": backend})()

    getattr(kit(sound), check)(**given)
    with pytest.raises(AssertionError):
        getattr(kit(Faulty(sound, name, fault)), check)(**given)


# Models


class AsksInAStep(LedgerSubmodule):
    def declare_step(self, walk, spans_B):
        Wiring.of_core().ask("resident_walks", node="ledger")
        return super().declare_step(walk, spans_B)


class AskingLedger(LedgerModel):
    def build_submodule(self, node, env):
        return AsksInAStep(env)


class LedgerContract(ModelContract):
    ref = LEDGER

    def open(self, folder, *sets, lag=None):
        small = ("engine.max_rows=4", "engine.token_budget=64", "engine.max_context=64")
        core, wired, report = open_wired(self.ref, folder, (*small, *sets), lag)
        return Opened(core=core, wired=wired, report=report)

    def requests(self, front):
        return [ledger_request(range(3 + i), i, 4) for i in range(3)]


class AskingContract(LedgerContract):
    ref = f"{__name__}:AskingLedger"


def test_a_hook_in_a_step_fails_its_check(tmp_path):
    LedgerContract().test_no_hook_is_asked_in_a_step(tmp_path / "sound", ("engine.graphs=off",))
    with pytest.raises(AssertionError, match="asked during a step: resident_walks"):
        AskingContract().test_no_hook_is_asked_in_a_step(tmp_path, ("engine.graphs=off",))


# Plugins


def test_torch_at_import_fails_its_check(plugin):
    sound, record = plugin("sound")
    sound.test_it_loads_without_torch(record)
    faulty, record = plugin("heavy", head="import torch\n")
    with pytest.raises(AssertionError, match="torch"):
        faulty.test_it_loads_without_torch(record)


def test_an_untrue_claim_fails_its_check(plugin):
    claims = "[capabilities]\nresident_walks = {walks}\ncapture = ['prefill', 'decode']\n"
    sound, record = plugin("sound", claims=claims.format(walks="['decode']"))
    sound.test_every_claim_in_the_manifest_is_true(record.manifest)
    faulty, record = plugin("boasts", claims=claims.format(walks="['decode', 'prefill']"))
    with pytest.raises(AssertionError, match="prefill"):
        faulty.test_every_claim_in_the_manifest_is_true(record.manifest)


def test_a_claim_that_nobody_tests_fails_its_check(plugin):
    faulty, record = plugin("vague", claims="[capabilities]\nbatching = true\n")
    with pytest.raises(AssertionError, match="claim_batching"):
        faulty.test_every_claim_in_the_manifest_is_true(record.manifest)
