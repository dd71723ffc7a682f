"""The contract of resources catches planted faults: each fails the check that is about it."""

import pytest
import torch

from mstar_core.resources.kv import KVResource
from mstar_core.resources.state import StateResource
from mstar_core.testing.resources import ResourceContract, World


class TakesWhenAsked(StateResource):
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


class IgnoresTheFence(StateResource):
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


class PadsWithAnotherSlot(StateResource):
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
FAULTS = [
    (TakesWhenAsked, "test_asking_changes_nothing"),
    (ClosesTwice, "test_close_is_idempotent"),
    (LeaksOnAbort, "test_a_request_that_took_no_step_leaves_nothing"),
    (IgnoresTheFence, "test_what_was_given_back_waits_for_its_fence"),
    (KeepsTheOldSlotFresh, "test_a_handle_that_is_used_again_starts_afresh"),
    (PlansAList, "test_a_plan_holds_arrays_and_ints_only"),
    (PadsWithAnotherSlot, "test_padding_is_the_same_in_every_step"),
    (PlansTheStepsOwnShape, "test_a_leased_plan_is_shaped_like_the_padding_plan"),
    (IsOffByOneAtAPageEdge, "test_a_stream_cut_anywhere_is_placed_the_same"),
    (PromisesNothing, "test_an_admitted_request_always_has_room"),
]


def contract_of(cls) -> ResourceContract:
    class Contract(ResourceContract):
        key = "it"
        stream_fields = ("write_T",) if issubclass(cls, KVResource) else ()

        def build(self, world):
            if issubclass(cls, KVResource):
                world.build(cls, "it", KV, {"page_tokens": 8, "num_pages": 4})
            else:
                world.build(cls, "it", STATE)

    return Contract()


def run(contract: ResourceContract, check: str) -> None:
    world = World(max_rows=4, max_context=16)
    contract.build(world)
    method = getattr(contract, check)
    names = method.__code__.co_varnames[: method.__code__.co_argcount]
    arguments = {"world": world, "rows": 2, "spans": [5, 1]}
    method(**{name: arguments[name] for name in names if name in arguments})


@pytest.mark.parametrize(("cls", "check"), FAULTS, ids=lambda x: getattr(x, "__name__", x))
def test_a_planted_fault_fails_the_check_about_it(cls, check):
    run(contract_of(StateResource if issubclass(cls, StateResource) else KVResource), check)
    with pytest.raises((AssertionError, AttributeError)):
        run(contract_of(cls), check)
