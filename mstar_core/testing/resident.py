"""The contract of resident columns: off the tables, a resource plans what it plans on the host.

::

    class TestStateIsResident(ResidentContract):
        def build(self, world: World) -> None:
            world.build(StateResource, "state", {"num_layers": 1, "blocks": {...}})

Random requests are opened, prompted, decoded on the host and off the tables, and closed, with fewer
rows in the store than live requests; every resident plan is compared with the host's own.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import pytest
from attrs import define, field

from mstar_core.resources.base import Opening
from mstar_core.resources.resident import Column, Resident
from mstar_core.testing.resident_tables import Seen, Tables, differences
from mstar_core.testing.world import World, opening_of

TOKENS = 12
"""The most tokens of each request of the contract."""


@define(kw_only=True, eq=False)
class History:
    """Random requests over tables: arrivals, chunks, decodes of both kinds, ends."""

    tables: Tables
    draw: random.Random
    openings: Iterator[Opening]
    prompts: dict[int, int] = field(factory=dict)
    """Tokens of the prompt that are still to come, per open request."""
    left: dict[int, int] = field(factory=dict)
    """Tokens that the request may still add."""

    def play(self, acts: int) -> Iterator[tuple[list[int], Seen]]:
        """Every resident step of ``acts`` random acts, with its requests in order."""
        for _ in range(acts):
            if self.draw.random() < 0.3:
                rows = self._decodable()
                if rows:
                    yield rows, self.tables.step(rows, self.draw.choice((len(rows), 2)))
            else:
                self.draw.choice((*[self._arrive] * 2, *[self._chunk] * 4, self._host, self._end))()

    def _arrive(self) -> None:
        world = self.tables.world
        opening = next(self.openings)
        full = len(self.prompts) == world.max_rows
        if full or any(r.can_open(opening) is not None for r in world.resources.values()):
            return
        handle = world.open(opening)
        self.prompts[handle], self.left[handle] = self.draw.randint(1, 8), TOKENS

    def _chunk(self) -> None:
        waiting = [handle for handle, tokens in self.prompts.items() if tokens]
        if waiting:
            handle = self.draw.choice(waiting)
            tokens = self.draw.randint(1, self.prompts[handle])
            last = tokens == self.prompts[handle]
            self.tables.on_the_host([handle], tokens, samples=last, decode=False)
            self.prompts[handle] -= tokens
            self.left[handle] -= tokens

    def _host(self) -> None:
        rows = self._decodable()
        if rows:
            self.tables.on_the_host(rows)

    def _end(self) -> None:
        over = [handle for handle, tokens in self.left.items() if not tokens]
        if over or (self.prompts and self.draw.random() < 0.1):
            handle = self.draw.choice(over or sorted(self.prompts))
            self.tables.close(handle)
            self.tables.world.retire()
            del self.prompts[handle], self.left[handle]

    def _decodable(self) -> list[int]:
        able = [h for h, tokens in self.prompts.items() if not tokens and self.left[h]]
        rows = self.draw.sample(able, min(len(able), self.draw.randint(1, 2)))
        for handle in rows:
            self.left[handle] -= 1
        return rows


class ResidentContract:
    """What the columns and resident plans of a world's resources must hold."""

    reads: tuple[str, ...] = ()
    """Keys that a decode step only reads."""

    @abstractmethod
    def build(self, world: World) -> None:
        """Build the resource in ``world``, and before it what it depends on."""

    def opening(self, world: World, number: int) -> Opening:
        """The request that is opened as ``number``; it adds at most 12 tokens."""
        return opening_of(TOKENS, keys=tuple(world.resources))

    @pytest.fixture
    def world(self) -> World:
        """A world of eight rows with the resource in it."""
        world = World(max_rows=8, max_context=16)
        self.build(world)
        return world

    @pytest.mark.parametrize("seed", range(6))
    def test_a_resident_plan_is_the_host_plan_field_by_field(self, world: World, seed: int) -> None:
        """Padding rows included; unused places of a block table are nobody's and not compared."""
        compared = 0
        for _, seen in self._history(world, seed).play(300):
            for key, host in seen.host.items():
                assert not (wrong := differences(host, seen.resident[key])), f"{key}: {wrong}"
            compared += 1
        assert compared > 10

    @pytest.mark.parametrize("seed", range(6))
    def test_the_rows_of_a_step_hold_the_hosts_truth_behind_it(
        self, world: World, seed: int
    ) -> None:
        history = self._history(world, seed)
        for handles, _ in history.play(300):
            assert not history.tables.wrong_rows(handles)
        if history.tables.planner.layout.num_cells:
            assert history.tables.planner.counts.displaced > 0, "nothing was displaced"

    def test_columns_are_whole_numbers_by_handle(self, world: World) -> None:
        for key, column in self._columns(world):
            name = f"{key}.{column.name}"
            assert len(column.host) == world.num_handles, name
            assert column.host.dtype.kind in "iu", f"{name} is {column.host.dtype}"
            if column.held is None:
                assert column.host.ndim == 1, name
                assert column.width == 1, name
            else:
                assert column.host.ndim == 2, name
                assert column.width == column.host.shape[1], name
                assert column.held.shape == (world.num_handles,), name
                assert not column.advances, f"{name}: a span has no length to advance"

    def test_columns_of_a_resource_have_names_of_their_own(self, world: World) -> None:
        names = [(key, column.name) for key, column in self._columns(world)]
        assert len(set(names)) == len(names)

    def test_columns_of_a_request_that_is_over_hold_nothing(self, world: World) -> None:
        tables = Tables.over(world, reads=self.reads)
        handle = world.open(self.opening(world, 0))
        tables.prompt(handle, 9)
        tables.step([handle])
        tables.close(handle)
        for key, column in self._columns(world):
            assert not np.any(column.host[handle]), f"{key}.{column.name}"

    def test_a_column_advances_by_the_span_of_a_step_or_stays(self, world: World) -> None:
        tables = Tables.over(world, reads=self.reads)
        handle = world.open(self.opening(world, 0))
        tables.prompt(handle, 3)
        before = [column.host[handle].copy() for _, column in self._columns(world)]
        tables.on_the_host([handle])
        for (key, column), was in zip(self._columns(world), before, strict=True):
            grows = int(column.advances and key not in self.reads)
            if column.held is None:
                assert column.host[handle] == was + grows, f"{key}.{column.name}"

    def _columns(self, world: World) -> Iterator[tuple[str, Column]]:
        for key, resource in world.resources.items():
            assert isinstance(resource, Resident), f"{key} has no columns"
            for column in resource.resident_columns():
                yield key, column

    def _history(self, world: World, seed: int) -> History:
        return History(
            tables=Tables.over(world, reads=self.reads),
            draw=random.Random(seed),
            openings=(self.opening(world, number) for number in range(1000)),
        )
