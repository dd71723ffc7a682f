"""Device tables that are stepped without an engine, beside the host's own plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs
import numpy as np
import torch
from attrs import define, frozen

from mstar_core.resident import ResidentPlanner, ResidentWrites
from mstar_core.resources.resident import Resident
from mstar_core.resources.sampler import SamplerResource
from mstar_core.step import Plan, ResourceStep
from mstar_core.testing.world import World, carry_step_of, decode_lease, staged, step_of

TOLD_WHO_SAMPLES = ("carry", "sampler")
BY_THE_HOST_ALONE = frozenset({"keeps"})
"""Ints that say who planned the step: the sampler's settings are kept by host-planned steps."""


@frozen(kw_only=True, eq=False)
class Seen:
    """One resident step: what was sent, and both plans of every resource."""

    writes: ResidentWrites
    host: Mapping[str, Plan]
    resident: Mapping[str, Plan]


@define(kw_only=True, eq=False)
class Tables:
    """The device tables over a world's resources, which the caller steps."""

    world: World
    planner: ResidentPlanner
    reads: tuple[str, ...] = ()
    """Keys that a decode step only reads."""

    @classmethod
    def over(cls, world: World, width: int = 2, reads: Sequence[str] = ()) -> Self:
        """Tables for decode steps of at most ``width`` rows over every resource of ``world``."""
        columns = {
            key: resource.resident_columns()
            for key, resource in world.resources.items()
            if isinstance(resource, Resident)
        }
        planner = ResidentPlanner("node", columns, width, world.table, world.buffers)
        return cls(world=world, planner=planner, reads=tuple(reads))

    def parts(
        self, handles: Sequence[int], spans: int = 1, samples: bool = True, decode: bool = True
    ) -> dict[str, ResourceStep]:
        """What a step does to each resource; a decode adds nothing to those that it reads."""
        found: dict[str, ResourceStep] = {}
        for key, resource in self.world.resources.items():
            adds = 0 if decode and key in self.reads else spans
            if resource.kind in TOLD_WHO_SAMPLES:
                found[key] = carry_step_of(
                    *handles, spans=adds, carry=decode, samples=samples, key=key
                )
            else:
                found[key] = step_of(*handles, spans=adds, key=key)
        return found

    def on_the_host(
        self, handles: Sequence[int], spans: int = 1, samples: bool = True, decode: bool = True
    ) -> dict[str, Plan]:
        """A step that is planned on the host, with what a forward keeps of it."""
        plans = self.world.run(self.parts(handles, spans, samples, decode))
        for key, plan in plans.items():
            resource = self.world.resources[key]
            if isinstance(resource, SamplerResource):
                resource.kept.keep(plan)  # type: ignore[arg-type]
        return plans

    def prompt(self, handle: int, tokens: int) -> None:
        """The whole prompt in one host-planned step."""
        self.on_the_host([handle], tokens, decode=False)

    def step(self, handles: Sequence[int], rows: int | None = None, variant: int = 0) -> Seen:
        """A decode step off the tables, as a graph over a bucket of ``rows`` runs it."""
        world, rows = self.world, rows or len(handles)
        parts = self.parts(handles)
        for key, part in parts.items():
            world.resources[key].take(part)
        host = world.plan(parts, decode_lease(rows, variant))
        writes = self.planner.plan(np.asarray(handles, np.int64))
        resident, advance_N = self._replay(writes, rows, variant)
        for key, part in parts.items():
            world.resources[key].commit(part)
        self.planner.commit(writes.slots_B, advance_N)
        world.launched += 1
        return Seen(writes=writes, host=host, resident=resident)

    def _replay(
        self, writes: ResidentWrites, rows: int, variant: int
    ) -> tuple[dict[str, Plan], np.ndarray]:
        planner, world = self.planner, self.world
        flat = planner.store_RC.view(-1)
        for start, values in writes.runs:
            flat[start : start + len(values)] = torch.from_numpy(values)
        slots_B = torch.zeros(rows, dtype=torch.int64)
        slots_B[: len(writes.slots_B)] = torch.from_numpy(writes.slots_B)
        cells_2K = torch.zeros((2, rows * planner.cells_per_row()), dtype=torch.int64)
        count = len(writes.index_K)
        cells_2K[0, :count] = torch.from_numpy(writes.index_K)
        cells_2K[1, :count] = torch.from_numpy(writes.value_K)
        sent = (*cells_2K, torch.tensor([count]))
        plans: dict[str, Plan] = {}
        spans = {key: int(key not in self.reads) for key in world.resources}
        advance_N = planner.layout.advance(spans)
        cells, step = planner.begin(slots_B, *sent, advance_N=advance_N, variant=variant)
        for key, span in spans.items():
            resource: Any = world.resources[key]
            given = attrs.evolve(step, span=span)
            plans[key] = resource.resident_plan(cells.get(key, {}), given, plans)
        return plans, advance_N

    def close(self, handle: int) -> None:
        """End a request: its row of the store and all that it holds."""
        self.planner.release(handle)
        self.world.close(handle)

    def wrong_rows(self, handles: Sequence[int]) -> list[str]:
        """Cells of the store that are not the host's truth, for requests that a step just ran."""
        planner, handles_B = self.planner, np.asarray(handles, np.int64)
        slots_B = planner.slots.of(handles_B)
        rows_BC = planner.store_RC[slots_B].numpy()
        layout, wrong = planner.layout, []
        if planner.store_RC[0].any():
            wrong.append(f"row 0 holds {planner.store_RC[0].tolist()}")
        for (key, name), column in (*layout.narrow, *layout.spans):
            at = layout.start[key, name]
            for handle, row_C in zip(handles, rows_BC, strict=True):
                used = 1 if column.held is None else int(column.held[handle])
                want = np.atleast_1d(column.host[handle])[:used]
                got = row_C[at : at + used]
                if not np.array_equal(got, want):
                    wrong.append(f"request {handle}, {key}.{name}: {got}, want {want}")
        return wrong


def differences(host: Plan, resident: Plan) -> list[str]:
    """The fields in which a resident plan is not the host's."""
    assert type(host) is type(resident)
    wrong = []
    for name in (a.name for a in attrs.fields(type(host))):
        want, got = getattr(staged(host), name), getattr(resident, name)
        if name in host.resident_lacks():
            same = got is None
        elif not isinstance(want, torch.Tensor):
            same = got == want or name in BY_THE_HOST_ALONE
        elif (want.dtype, want.shape) != (got.dtype, got.shape):
            same = False
        else:
            used = want != 0 if name.endswith("_BW") else torch.ones_like(want, dtype=torch.bool)
            same = torch.equal(got[used], want[used])
        if not same:
            wrong.append(f"{name}: {got}, want {want}")
    return wrong
