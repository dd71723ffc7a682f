"""What the fuzzer says where one part of resident decode or of the fences is undone.

Lives of captured, resident engines with steps in flight are played until one of them shows it. Two
of what is undone change no token: with one stream, memory that comes back early is written behind
the steps that still name it, and a row that has stopped is not read again. The first is seen in
what cools, the second by the row check.
"""

import attrs
import numpy as np
import pytest
import torch

from mstar_core.engine.reading import Reader
from mstar_core.resident import kernels
from mstar_core.resident.planner import ResidentPlanner
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.fence import IdPool
from mstar_core.resources.resident import Column
from mstar_core.sched import Scheduler
from mstar_core.testing import fuzz
from mstar_core.testing.fuzz import LIFE, FuzzFailure, fuzz_ledger
from mstar_core.testing.schedules import Limits, draw_setup


@pytest.fixture
def fuzz_life(monkeypatch, tmp_path):
    """``fuzz_life(n)``: what is wrong with the seeds of one engine; a failure is not shrunk."""
    monkeypatch.setattr(fuzz, "shrink", lambda failure, subject: failure)

    def play(life):
        try:
            fuzz_ledger(range(life * LIFE, (life + 1) * LIFE), tmp_path)
        except FuzzFailure as failure:
            return str(failure)
        return ""

    return play


class ColumnOfCarry:
    """One more column in the ledger's rows of the store, and what a resident step does with it."""

    name = "more"

    def __init__(self, patch):
        self.patch, self.host, self.plan, self.step = patch, None, None, None
        build, columns = CarryResource.build.__func__, CarryResource.resident_columns
        begin, make = ResidentPlanner.begin, CarryResource.resident_plan

        def with_column(cls, spec, env):
            self.host = env.table.column(np.int64)
            return build(cls, spec, env)

        def begun(planner, slots_B, *staged, advance_N, variant):
            self.step, self.advance_N = (planner, slots_B), advance_N
            return begin(planner, slots_B, *staged, advance_N=advance_N, variant=variant)

        def planned(carry, cells, rows, upstream):
            self.cells_B, self.plan = cells[self.name], make(carry, cells, rows, upstream)
            return self.plan

        patch(CarryResource, "build", classmethod(with_column))
        more = Column(name=self.name, host=np.zeros(0))
        patch(
            CarryResource,
            "resident_columns",
            lambda carry: (*columns(carry), attrs.evolve(more, host=self.host)),
        )
        patch(ResidentPlanner, "begin", begun)
        patch(CarryResource, "resident_plan", planned)

    def read_instead_of_carry(self):
        """A resident step's token comes from the column."""
        read = CarryResource.read

        def of_row(carry, name, host_T, plan):
            mine = plan is self.plan and name == "ids"
            return self.cells_B if mine else read(carry, name, host_T, plan)

        self.patch(CarryResource, "read", of_row)

    def host_knows_the_token(self):
        """The column is the last token that has been read."""
        take = Reader._token

        def taken(reader, state, track, i, read):
            self.host[state.handle] = read.ids_B[i]
            take(reader, state, track, i, read)

        self.patch(Reader, "_token", taken)

    def device_writes_the_token(self):
        """The column is what was sampled; the host sends it with whole rows only."""
        write, differ = CarryResource.write, ResidentPlanner._moved

        def at(planner):
            return next(i for i, (p, _) in enumerate(planner.layout.narrow) if p[1] == self.name)

        def into_the_row(carry, name, values_B, plan):
            write(carry, name, values_B, plan)
            if plan is self.plan and name == "ids":
                planner, slots_B = self.step
                rows_B = torch.where(slots_B == 0, len(planner.store_RC) - 1, slots_B)
                planner.store_RC[:, at(planner)].index_copy_(0, rows_B, values_B)

        def no_difference(planner, slots_B, truth_BN, small_B):
            planner._holds_RN[slots_B, at(planner)] = truth_BN[:, at(planner)]
            return differ(planner, slots_B, truth_BN, small_B)

        self.patch(CarryResource, "write", into_the_row)
        self.patch(ResidentPlanner, "_moved", no_difference)


def never_consume(patch):
    consume = kernels.scatter_staged

    def scatter(store_RC, index_K, value_K, count_1):
        consume(store_RC, index_K, value_K, count_1.clone())

    patch(kernels, "TORCH", attrs.evolve(kernels.TORCH, scatter_staged=scatter))


def keep_the_token_in_the_row(patch):
    column = ColumnOfCarry(patch)
    column.host_knows_the_token()
    column.device_writes_the_token()
    column.read_instead_of_carry()


def take_the_token_from_the_host(patch):
    column = ColumnOfCarry(patch)
    column.host_knows_the_token()
    column.read_instead_of_carry()


def free_without_a_fence(patch):
    give_back = IdPool.give_back

    def at_once(pool, ids, fence, *more, **named):
        give_back(pool, ids, -1, *more, **named)

    patch(IdPool, "give_back", at_once)


def advance_only_who_has_not_stopped(patch):
    column, launched = ColumnOfCarry(patch), Scheduler.launched
    write = CarryResource.write

    def told(scheduler, rows, number):
        launched(scheduler, rows, number)
        for row in rows:
            request = row.state.request
            stops = () if request.ignore_stop_ids else request.stop_ids
            column.host[row.state.handle] = next(iter(stops), -1)

    def seen(carry, name, values_B, plan):
        write(carry, name, values_B, plan)
        if plan is column.plan and name == "ids":  # what has stopped goes back
            planner, slots_B = column.step
            stopped_B = slots_B * (values_B == column.cells_B)
            kernels.advance_rows(
                planner.store_RC, stopped_B, -planner.advance_tensor(column.advance_N)
            )

    patch(Scheduler, "launched", told)
    patch(CarryResource, "write", seen)


UNDONE = {
    never_consume: ": tokens [",
    keep_the_token_in_the_row: ": tokens [",
    take_the_token_from_the_host: ": tokens [",
    free_without_a_fence: "places cool, want 1",
    advance_only_who_has_not_stopped: "cells of device tables differ",
}


def lives():
    """Those of the first hundred in which residence and run-ahead can go wrong."""
    for life in range(100):
        setup = draw_setup(life, Limits())
        if setup.graphs == "recorder" and setup.resident == "auto" and setup.in_flight:
            yield life


@pytest.mark.parametrize("undo", UNDONE, ids=lambda undo: undo.__name__)
def test_the_fuzzer_finds_what_is_undone(monkeypatch, fuzz_life, undo):
    undo(monkeypatch.setattr)
    assert any(UNDONE[undo] in fuzz_life(life) for life in lives())
