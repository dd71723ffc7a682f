"""One node as the engine runs it: its resources in order, and the forward with its borders.

The borders of a forward are the same captured or eager::

    looped inputs ← carry rows      edge inputs ← ring places      prompt inputs ← the block
                        submodule.forward(walk, inputs, plans)
    looping outputs → carry rows    edge outputs → ring places     read outputs → the landing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from attrs import define, evolve, field
from torch import Tensor

from mstar_core.dtypes import torch_dtype_named
from mstar_core.engine.edges import EdgePlan, EdgeRing
from mstar_core.engine.staging import Key
from mstar_core.model.base import NodeSubmodule
from mstar_core.model.walks import Input, Walk
from mstar_core.resident import ResidentPlanner
from mstar_core.resources.base import Resource
from mstar_core.resources.carry import CarryStep
from mstar_core.resources.shared import Copies
from mstar_core.sched.scheduler import Row
from mstar_core.step import (
    Bucket,
    CombinedSplit,
    Lease,
    Plan,
    ResourceStep,
    Step,
    stage_plan,
    staged_arrays,
)

INPUTS = "inputs"
RESIDENT = "resident"
EDGES = "edges"
CARRY = "carry"
STAGED_CELLS = ("index_K", "value_K", "count_1")
TOLD_WHO_SAMPLES = ("carry", "sampler")
"""Kinds of resource whose part of a step says which rows sample."""


@define(eq=False, kw_only=True)
class NodeRuntime:
    """A built node."""

    name: str
    submodule: NodeSubmodule
    resources: Mapping[str, Resource]
    """By key, in dependency order."""
    walks: Mapping[str, Walk]
    rings: Mapping[str, EdgeRing]
    """The edges that its walks fill or empty, by name."""
    dtype: torch.dtype
    splits: Mapping[str, CombinedSplit] = {}
    """Combined walks that are run as two kernels."""
    planner: ResidentPlanner | None = None
    """The device tables, where some walk is resident."""
    resident_walks: frozenset[str] = frozenset()
    """Walks whose captured steps read them."""
    copying: tuple[str, ...] = ()
    """Resources that copy before and behind their steps (prefix reuse)."""
    row_check: bool = False
    """Those steps also report what the tables held."""
    _advance: dict[str, np.ndarray] = field(factory=dict, init=False)
    """By walk; the tables stay as they are once they are there."""

    def declare(self, step: Step) -> dict[str, ResourceStep]:
        """The step's part in each resource."""
        spans = self.submodule.declare_step(step.walk, step.spans_B)
        if spans is None:
            spans = {key: step.spans_B for key in self.resources if key != CARRY}
        if CARRY in self.resources:
            spans = {**spans, CARRY: step.spans_B}
        return {key: self._part(step, key, spans[key]) for key in self.resources if key in spans}

    def _part(self, step: Step, key: str, spans_B: np.ndarray) -> ResourceStep:
        split = step.walk in self.splits
        if self.resources[key].kind not in TOLD_WHO_SAMPLES:
            return ResourceStep(key=key, handles_B=step.handles_B, spans_B=spans_B, split=split)
        return CarryStep(
            key=key,
            handles_B=step.handles_B,
            spans_B=spans_B,
            split=split,
            carry_B=step.carry_B,
            samples_B=step.samples_B,
        )

    def variant(self, step: Step) -> int:
        """The union of the rows' needs."""
        bits = 0
        for key, part in step.parts.items():
            bits |= self.resources[key].variant(part)
        return bits

    def plan(self, step: Step, lease: Lease | None) -> dict[str, Plan]:
        """Every resource's plan, in dependency order; host arrays still."""
        plans: dict[str, Plan] = {}
        for key, part in step.parts.items():
            plans[key] = self.resources[key].plan(part, lease, plans)
        return plans

    def arrays(
        self, step: Step, rows: Sequence[Row], plans: Mapping[str, Plan], bucket: Bucket | None
    ) -> dict[Key, np.ndarray]:
        """All that travels: plan arrays, prompt inputs, edge places."""
        walk = self.walks[step.walk]
        num_items = step.num_tokens if bucket is None else bucket.tokens
        found: dict[Key, np.ndarray] = {}
        for key, plan in plans.items():
            found.update({(key, name): array for name, array in staged_arrays(plan).items()})
        for given in walk.inputs:
            if walk.feed in ("prompt", "rows") and not self._from_edge(walk, given):
                found[INPUTS, given.name] = prompt_items(given, rows, num_items)
        if walk.edge is not None:
            ring = self.rings[walk.edge]
            found[EDGES, walk.edge] = ring.places_in(step.handles_B, step.spans_B, num_items)
        for output in walk.outputs:
            if output.edge is not None:
                ring = self.rings[output.edge]
                found[EDGES, output.edge] = ring.places_out(step.handles_B, step.spans_B, num_items)
        return found

    def run(
        self, walk: Walk, plans: Mapping[str, Plan], tensors: Mapping[Key, Tensor]
    ) -> dict[str, Tensor]:
        """The forward with its borders, on the device; what the host reads is returned."""
        staged = {
            key: stage_plan(plan, {f: tensors[key, f] for f in staged_arrays(plan)})
            for key, plan in plans.items()
        }
        return self._forward(walk, staged, tensors)

    def run_resident(
        self, bucket: Bucket, tensors: Mapping[Key, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Plan]]:
        """The same off the device tables: what the host reads, and the plans that were used."""
        walk, planner = self.walks[bucket.walk], self.tables
        slots_B = tensors[RESIDENT, "slots_B"]
        staged = (tensors[RESIDENT, name] for name in STAGED_CELLS)
        cells, rows = planner.begin(
            slots_B, *staged, advance_N=self.advance(walk.name), variant=bucket.variant
        )
        plans: dict[str, Plan] = {}
        for key, span in self.resident_spans(walk.name).items():
            resource: Any = self.resources[key]
            given = evolve(rows, span=span)
            plans[key] = resource.resident_plan(cells.get(key, {}), given, plans)
        edges, places = dict[str, Plan](), dict[Key, Tensor]()
        for name, ring in self.filled(walk.name).items():
            plan = ring.resident_plan(cells[ring.key], rows.real_B)
            edges[ring.key], places[EDGES, name] = plan, plan.places_B
        return self._forward(walk, plans, {**tensors, **places}), {**plans, **edges}

    def resident_plans(self, step: Step) -> dict[str, Plan]:
        """What the host would plan of a resident step, its edges included."""
        plans = self.plan(step, step.lease)
        for ring in self.filled(step.walk).values():
            places_B = ring.places_out(step.handles_B, step.spans_B, step.num_tokens)
            plans[ring.key] = EdgePlan(places_B=places_B)
        return plans

    def filled(self, walk: str) -> dict[str, EdgeRing]:
        """The edges that outputs of the walk travel, by name."""
        names = [o.edge for o in self.walks[walk].outputs if o.edge is not None]
        return {name: self.rings[name] for name in names}

    def advance(self, walk: str) -> np.ndarray:
        """What one row of a resident walk adds to each narrow cell of the device tables."""
        if walk not in self._advance:
            edges = {ring.key: 1 for ring in self.filled(walk).values()}
            spans = {**self.resident_spans(walk), **edges}
            self._advance[walk] = self.tables.layout.advance(spans)
        return self._advance[walk]

    def resident_spans(self, walk: str) -> dict[str, int]:
        """What one row of the walk adds to each resource, in dependency order."""
        one = np.ones(1, np.int64)
        spans = self.submodule.declare_step(walk, one)
        if spans is None:
            spans = dict.fromkeys(self.resources, one)
        spans = {CARRY: one, **spans}
        return {key: int(spans[key][0]) for key in self.resources if key in spans}

    def copies(self, key: str) -> Copies:
        """The resource ``key``, one of :attr:`copying`."""
        resource: Any = self.resources[key]
        found: Copies = resource
        return found

    @property
    def tables(self) -> ResidentPlanner:
        """The planner of a node that has resident walks."""
        if self.planner is None:
            raise LookupError(f"node {self.name} has no resident walk")
        return self.planner

    def close(self, handle: int, fence: int) -> None:
        """The request is over: every resource, and its row of the tables."""
        for resource in self.resources.values():
            resource.close(handle, fence)
        if self.planner is not None:
            self.planner.release(handle)

    def _forward(
        self, walk: Walk, staged: Mapping[str, Plan], tensors: Mapping[Key, Tensor]
    ) -> dict[str, Tensor]:
        inputs = {given.name: self._input(walk, given, staged, tensors) for given in walk.inputs}
        outputs = self.submodule(walk.name, inputs, staged)
        reads: dict[str, Tensor] = {}
        for output in walk.outputs:
            value = outputs.get(output.name)
            if value is None:
                continue
            if output.loops_to is not None:
                self._carry.write(output.loops_to, value, staged[CARRY])
            if output.edge is not None:
                self.rings[output.edge].write(value, tensors[EDGES, output.edge])
            if output.read:
                reads[output.name] = value
        return reads

    def commit(self, step: Step) -> None:
        """The step has been launched: every resource and edge advances."""
        for key, part in step.parts.items():
            self.resources[key].commit(part)
        walk, none = self.walks[step.walk], np.zeros_like(step.spans_B)
        if walk.edge is not None:
            self.rings[walk.edge].commit(step.handles_B, none, step.spans_B)
        for output in walk.outputs:
            if output.edge is not None:
                self.rings[output.edge].commit(step.handles_B, step.spans_B, none)

    @property
    def _carry(self) -> Any:
        return self.resources[CARRY]

    def _from_edge(self, walk: Walk, given: Input) -> bool:
        return walk.edge is not None and self.rings[walk.edge].edge.input == given.name

    def _input(
        self, walk: Walk, given: Input, staged: Mapping[str, Plan], tensors: Mapping[Key, Tensor]
    ) -> Tensor:
        if self._from_edge(walk, given):
            return self.rings[walk.edge or ""].read(tensors[EDGES, walk.edge or ""])
        dtype = torch_dtype_named(given.dtype, self.dtype)
        if not given.loops or walk.feed == "prompt":  # no row of a prompt goes on with a carry
            return tensors[INPUTS, given.name].to(dtype)
        host = None if walk.feed == "loop" else tensors[INPUTS, given.name].to(dtype)
        read: Tensor = self._carry.read(given.name, host, staged[CARRY])
        return read


def prompt_items(given: Input, rows: Sequence[Row], num_items: int) -> np.ndarray:
    """The rows' items of one prompt input, packed and zero-padded to ``num_items``.

    Zero too where a row's items come from its carry row.
    """
    dtype = np.dtype(np.float32 if given.dtype == "model" else given.dtype)
    packed = np.zeros((num_items, *given.shape), dtype)
    at = 0
    for row in rows:
        if not row.carry:
            end = row.start + row.span
            packed[at : at + row.span] = row.state.arrays[given.name][row.start : end]
        at += row.span
    return packed
