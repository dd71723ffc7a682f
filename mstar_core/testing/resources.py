"""The contract of a resource as tests: subclass :class:`ResourceContract` and say how to build.

::

    class TestStateKeepsTheContract(ResourceContract):
        key = "state"

        def build(self, world: World) -> None:
            world.build(StateResource, "state", {"num_layers": 1, "blocks": {...}})
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pytest
import torch

from mstar_core.resources.base import Opening, Resource
from mstar_core.step import Lease, Plan, ResourceStep, staged_arrays
from mstar_core.testing.world import (
    Spans,
    World,
    carry_step_of,
    decode_lease,
    mixed_lease,
    opening_of,
    prefill_lease,
    same,
    snapshot,
    staged,
    step_of,
)

__all__ = [
    "ResourceContract",
    "World",
    "carry_step_of",
    "decode_lease",
    "mixed_lease",
    "opening_of",
    "prefill_lease",
    "same",
    "snapshot",
    "staged",
    "step_of",
]

TOKENS = 12
"""The most tokens of each request of the kit."""
TOLD_WHO_SAMPLES = ("carry", "sampler")
LAYOUT_FIELDS = frozenset({"q_starts_B", "q_lens_B", "row_T", "col_T", "last_B"})
"""Fields that follow the packing, so that padding is not the same in every packed step."""
LISTS = frozenset({"fresh_row_B"})
"""Like fields that end in ``_K``: filled from the front, whichever rows they are for."""


class ResourceContract:
    """What every resource must hold, whatever it is. ``world`` is fresh for each test."""

    key: str
    """The resource under test."""
    stream_fields: tuple[str, ...] = ()
    """Per-token fields that place a token in its stream: the same however the stream is cut."""

    @abstractmethod
    def build(self, world: World) -> None:
        """Build the resource in ``world``, and before it what it depends on."""

    def opening(self, world: World, number: int) -> Opening:
        """The request that is opened as ``number``; it adds at most 12 tokens."""
        return opening_of(TOKENS, keys=tuple(world.resources))

    def steps(self, world: World, handles: Sequence[int], spans: Spans) -> dict[str, ResourceStep]:
        """What a step of these rows does to each resource of ``world``."""
        return {
            key: (carry_step_of if r.kind in TOLD_WHO_SAMPLES else step_of)(
                *handles, spans=spans, key=key
            )
            for key, r in world.resources.items()
        }

    def leases(self) -> tuple[Lease, ...]:
        """The buckets that plans are padded to."""
        return decode_lease(4), prefill_lease(4, 40), mixed_lease(4, 40, 2)

    @pytest.fixture
    def world(self) -> World:
        """A world of four rows with the resource in it."""
        world = World(max_rows=4, max_context=16)
        self.build(world)
        return world

    # Asking

    def test_asking_changes_nothing(self, world: World) -> None:
        resource, handle = world.resources[self.key], self._open(world)
        step = self.steps(world, [handle], 5)[self.key]
        for ask in (
            lambda: resource.check(self.opening(world, 1)),
            lambda: resource.can_open(self.opening(world, 1)),
            lambda: resource.room(step),
            lambda: resource.variant(step),
            resource.held,
        ):
            before = snapshot(resource, world)
            ask()
            ask()
            assert same(before, snapshot(resource, world))

    def test_planning_changes_nothing_and_repeats_itself(self, world: World) -> None:
        handle = self._open(world)
        steps = self.steps(world, [handle], 5)
        self._take(world, steps)
        before = snapshot(world.resources[self.key], world)
        first, again = self._plan(world, steps, None), self._plan(world, steps, None)
        assert same(before, snapshot(world.resources[self.key], world))
        assert same(_fields(first), _fields(again))

    def test_an_admitted_request_always_has_room(self, world: World) -> None:
        handles = list(self._fill(world))
        for spans in (5, 1, 1, 1, TOKENS - 8):
            for handle in handles:
                steps = self.steps(world, [handle], spans)
                for key, step in steps.items():
                    assert world.resources[key].room(step) is None
                world.run(steps)

    # Giving back

    def test_close_is_idempotent(self, world: World) -> None:
        resource, handle = world.resources[self.key], self._open(world)
        world.run(self.steps(world, [handle], 3))
        resource.close(handle, world.launched - 1)
        before = snapshot(resource, world)
        resource.close(handle, world.launched - 1)
        assert same(before, snapshot(resource, world))

    def test_a_request_that_took_no_step_leaves_nothing(self, world: World) -> None:
        handle = self._open(world)
        world.close(handle)
        self._assert_whole(world)

    @pytest.mark.parametrize("spans", [[5], [5, 1], [12], [1] * 12, [8, 1, 1]])
    def test_nothing_is_held_after_close(self, world: World, spans: list[int]) -> None:
        handles = [self._open(world), self._open(world)]
        for span in spans:
            world.run(self.steps(world, handles, span))
        for handle in handles:
            world.close(handle)
        world.retire()
        self._assert_whole(world)

    def test_what_was_given_back_waits_for_its_fence(self, world: World) -> None:
        resource, handles = world.resources[self.key], list(self._fill(world))
        if resource.can_open(self.opening(world, len(handles))) is None:
            return  # it holds nothing finite
        world.run(self.steps(world, handles, TOKENS))
        world.close(handles[0])
        short = resource.can_open(self.opening(world, len(handles)))
        assert short is not None, "free before the entry that names it is retired"
        assert short.cooling > 0
        world.retire()
        assert resource.can_open(self.opening(world, len(handles))) is None

    def test_a_handle_that_is_used_again_starts_afresh(self, world: World) -> None:
        first = self._open(world)
        steps = self.steps(world, [first], 5)
        self._take(world, steps)
        wanted = self._plan(world, steps, None)
        world.run(steps)
        world.close(first)
        world.retire()
        again = self._open(world)
        assert again == first
        steps = self.steps(world, [again], 5)
        self._take(world, steps)
        got = self._plan(world, steps, None)
        for name, value in _fields(wanted).items():
            if isinstance(value, np.ndarray) and value.dtype == np.bool_:
                assert same(value, _fields(got)[name]), name
            if name in ("before_B", "kv_lens_B", "index_T", "generated_B", "position_B"):
                assert same(value, _fields(got)[name]), name

    # Plans

    def test_a_plan_holds_arrays_and_ints_only(self, world: World) -> None:
        handle = self._open(world)
        steps = self.steps(world, [handle], 1)
        self._take(world, steps)
        for lease in (None, *self.leases()):
            for name, value in _fields(self._plan(world, steps, lease)).items():
                kinds = np.ndarray | torch.Tensor | int | None
                assert isinstance(value, kinds), f"{name} is a {type(value).__name__}"
                assert type(value) is not bool, f"{name} is a bool"

    def test_a_padding_plan_has_the_shapes_of_its_bucket(self, world: World) -> None:
        for lease in self.leases():
            plan = self._plan(world, self.steps(world, [], []), lease)
            sizes = {"B": lease.bucket.rows, "T": lease.bucket.tokens}
            for name, array in staged_arrays(plan).items():
                for axis, letter in enumerate(name.rsplit("_", 1)[-1][: array.ndim]):
                    if letter in sizes and name not in LISTS:
                        assert array.shape[axis] == sizes[letter], name

    @pytest.mark.parametrize("rows", [1, 2, 3])
    def test_a_leased_plan_is_shaped_like_the_padding_plan(self, world: World, rows: int) -> None:
        handles = list(self._fill(world))[:rows]
        for lease in self.leases():
            empty = self._plan(world, self.steps(world, [], []), lease)
            spans = 1 if lease.bucket.kind == "decode" else 3
            steps = self.steps(world, handles, spans)
            self._take(world, steps)
            plan = self._plan(world, steps, lease)
            world.run(steps)
            assert _shapes(plan) == _shapes(empty)

    @pytest.mark.parametrize("rows", [1, 2, 3])
    def test_padding_is_the_same_in_every_step(self, world: World, rows: int) -> None:
        handles = list(self._fill(world))[:rows]
        for lease in self.leases():
            decode = lease.bucket.kind == "decode"
            empty = staged_arrays(self._plan(world, self.steps(world, [], []), lease))
            steps = self.steps(world, handles, 1 if decode else 2)
            self._take(world, steps)
            plan = self._plan(world, steps, lease)
            world.run(steps)
            for name, array in staged_arrays(plan).items():
                if name in LISTS or name.endswith("_K") or (name in LAYOUT_FIELDS and not decode):
                    continue
                used = (2 if name.endswith("_T") and not decode else 1) * len(handles)
                assert same(array[used:], empty[name][used:]), name

    def test_a_stream_cut_anywhere_is_placed_the_same(self) -> None:
        whole, *others = [
            self._placed(cuts) for cuts in ([12], [1] * 12, [5, 7], [8, 4], [7, 1, 1, 3], [9, 3])
        ]
        for other in others:
            assert same(whole, other)

    # Parts

    def _open(self, world: World) -> int:
        opening = self.opening(world, world.num_handles - world.table.num_free)
        for resource in world.resources.values():
            resource.check(opening)
            assert resource.can_open(opening) is None
        return world.open(opening)

    def _fill(self, world: World) -> Iterator[int]:
        for number in range(world.max_rows):
            opening = self.opening(world, number)
            if any(r.can_open(opening) is not None for r in world.resources.values()):
                return
            yield world.open(opening)

    def _take(self, world: World, steps: dict[str, ResourceStep]) -> None:
        for key, step in steps.items():
            world.resources[key].take(step)

    def _plan(self, world: World, steps: dict[str, ResourceStep], lease: Lease | None) -> Plan:
        return world.plan(steps, lease)[self.key]

    def _placed(self, cuts: Sequence[int]) -> dict[str, np.ndarray]:
        world = World(max_rows=4, max_context=16)
        self.build(world)
        handle, found = self._open(world), [dict[str, np.ndarray]()]
        for span in cuts:
            steps = self.steps(world, [handle], span)
            self._take(world, steps)
            found.append(staged_arrays(self._plan(world, steps, None)))
            world.run(steps)
        return {
            name: np.concatenate([plan[name] for plan in found[1:]]) for name in self.stream_fields
        }

    def _assert_whole(self, world: World) -> None:
        resource: Resource = world.resources[self.key]
        for unit, (free, total) in resource.held().items():
            assert free == total, f"{total - free} {unit} are still held"
        opening = self.opening(world, 0)
        assert resource.can_open(opening) is None


def _fields(plan: Plan) -> dict[str, object]:
    return {a.name: getattr(plan, a.name) for a in attrs.fields(type(plan))}


def _shapes(plan: Plan) -> dict[str, object]:
    """Shape and dtype of every array, value of every int."""
    return {
        name: (value.shape, value.dtype) if isinstance(value, np.ndarray) else value
        for name, value in _fields(plan).items()
        if not isinstance(value, torch.Tensor)
    }
