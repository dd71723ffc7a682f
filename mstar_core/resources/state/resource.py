"""Recurrent state: one slot per request, from admission to the end.

::

    slot     0      1      2      3        slot 0 is null: padding rows read and write it
    request  -      a      free   b
    fresh    yes    no            yes      b has taken no step: its slot holds another's leftovers

A slot is never cleared. The plan says which rows are fresh, and the kernel starts those from zero
by select, so whatever a slot holds (NaN too) reaches nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from attrs import define
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.resources.base import BuildEnv, Opening, Resource, ResourceSpec
from mstar_core.resources.cost import RowCost
from mstar_core.resources.fence import IdPool
from mstar_core.resources.resident import Column, ResidentRows
from mstar_core.resources.settings import read_settings
from mstar_core.resources.shared import Prefix
from mstar_core.resources.state.config import StateConfig, StateOptions
from mstar_core.resources.state.plan import StatePlan
from mstar_core.resources.state.pool import SlotPool
from mstar_core.resources.state.snapshots import Copy, Snapshots
from mstar_core.step import Lease, Plan, ResourceStep, Shortage


@define(kw_only=True, eq=False)
class StateResource(Resource):
    """The recurrent state of one node. A row's span is the items that its state absorbs."""

    kind: ClassVar[str] = "state"
    Options: ClassVar[type] = StateOptions
    Config: ClassVar[type] = StateConfig
    resident_adds: ClassVar[tuple[int, ...]] = (1,)

    key: str
    options: StateOptions
    config: StateConfig
    env: BuildEnv
    pool: SlotPool
    ids: IdPool
    length: np.ndarray
    """int64 per request: tokens absorbed, steps in flight included."""
    slot: np.ndarray
    """int64 per request; 0: no slot."""
    started: np.ndarray
    """bool per request: a step has written the slot, or a snapshot will have."""
    snapshots: Snapshots | None = None
    """Where prefixes are reused."""

    @classmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> StateResource:
        options = read_settings(StateOptions, spec.options, f"resource {spec.key}.options")
        config = read_settings(StateConfig, env.config, f"resources.{spec.key}")
        pool = SlotPool.claim(spec.key, options, env)
        return cls(
            key=spec.key,
            options=options,
            config=config,
            env=env,
            pool=pool,
            ids=IdPool(pool.num_slots, env.fences),
            length=env.table.column(np.int64),
            slot=env.table.column(np.int64),
            started=env.table.column(np.bool_),
        )

    def layer(self, index: int) -> Mapping[str, Tensor]:
        """The blocks of one layer by name, ``[S, *shape]``."""
        return {name: block[index] for name, block in self.pool.blocks.items()}

    def can_open(self, opening: Opening) -> Shortage | None:
        return self._no_slot()

    def open(self, handle: int, opening: Opening) -> None:
        self.slot[handle] = self.ids.take(1)[0]

    def plan(
        self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]
    ) -> StatePlan:
        rows = step.num_rows if lease is None else lease.bucket.rows
        slots_B = np.zeros(rows, dtype=np.int64)
        fresh_B = np.ones(rows, dtype=np.bool_)
        slots_B[: step.num_rows] = self.slot[step.handles_B]
        fresh_B[: step.num_rows] = ~self.started[step.handles_B]
        return StatePlan(slots_B=slots_B, fresh_B=fresh_B)

    @property
    def grain(self) -> int:
        """Snapshots lie this many tokens apart."""
        return self.config.snapshot_every

    @property
    def cuts(self) -> bool:
        """A state is known at the end of a step only."""
        return True

    def reuse_refusal(self) -> Refusal | None:
        if self.config.snapshots != 0:
            return None
        return Refusal(
            code="no-snapshots",
            where=f"resource {self.key}",
            got=f"resources.{self.key}.snapshots: 0",
            want="memory for at least one snapshot",
            fix="nothing to do: every request computes its whole prompt; or raise snapshots",
            owner=self.key,
        )

    def begin_sharing(self) -> None:
        env, num = self.env, self.config.snapshots or self.env.max_rows
        blocks = {
            name: env.claim(self.key, f"snapshots of {name}", _shape(block, num + 1), block.dtype)
            for name, block in self.pool.blocks.items()
        }
        slots, every = self.pool.blocks, self.config.snapshot_every
        self.snapshots = Snapshots.over(every, blocks, slots, env.fences)

    def match(self, prefix: Prefix, most: int) -> Sequence[int]:
        """Every boundary that a snapshot is kept of; there may be none below it."""
        every, kept = self.config.snapshot_every, self._snapshots.kept
        return [n for n in range(every, most + 1, every) if kept.find(prefix.key(n)) is not None]

    def adopt(self, handle: int, prefix: Prefix, boundary: int) -> None:
        self._snapshots.pin(handle, prefix.key(boundary))
        self.started[handle], self.length[handle] = True, boundary

    def publish(self, handle: int, prefix: Prefix, length: int) -> None:
        self._snapshots.publish(handle, prefix, length)

    def sharing(self) -> Mapping[str, int]:
        one = self._snapshots
        return {
            "cached snapshots": len(one.kept),
            "evicted snapshots": one.kept.num_evicted,
            "skipped snapshots": one.num_skipped,
        }

    def before(self, step: ResourceStep, number: int) -> Copy | None:
        return self._snapshots.restore(step.handles_B, self.slot[step.handles_B], number)

    def behind(self, step: ResourceStep, number: int) -> Copy | None:
        handles_B = step.handles_B
        return self._snapshots.keep(handles_B, self.length[handles_B], self.slot[handles_B], number)

    @property
    def _snapshots(self) -> Snapshots:
        if self.snapshots is None:
            raise LookupError(f"{self.key}: begin_sharing was not called")
        return self.snapshots

    def resident_refusal(self, walk: str) -> Refusal | None:
        return None

    def resident_columns(self) -> tuple[Column, ...]:
        return (Column(name="slot", host=self.slot),)

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> StatePlan:
        """A row that decodes has been through its prompt: its slot is not fresh."""
        return StatePlan(slots_B=cells["slot"], fresh_B=rows.padding_B)

    def commit(self, step: ResourceStep) -> None:
        self.started[step.handles_B] |= step.spans_B > 0
        self.length[step.handles_B] += step.spans_B

    def close(self, handle: int, fence: int) -> None:
        if self.slot[handle]:
            self.ids.give_back([self.slot[handle]], fence)
        if self.snapshots is not None:
            self.snapshots.close(handle, fence)
        self.slot[handle] = self.length[handle] = 0
        self.started[handle] = False

    def row_cost(self, spans: Mapping[str, int], before: int) -> RowCost:
        """The slot, written, and read unless it is fresh."""
        slot = sum(block[:, 0].numel() * block.itemsize for block in self.pool.blocks.values())
        return RowCost(num_bytes=slot * (1 + (before > 0)) if spans[self.key] else 0)

    def pieces(self, handle: int) -> Sequence[Tensor]:
        """Every block of the slot, all layers, ``[L, *shape]`` each."""
        blocks, place = self.pool.blocks, int(self.slot[handle])
        source = None if self.snapshots is None else self.snapshots.source(handle)
        if self.snapshots is not None and source is not None:  # no step has copied it yet
            blocks, place = self.snapshots.blocks, source
        return [block[:, place] for block in blocks.values()]

    def offload(self, handle: int, fence: int) -> None:
        if self.snapshots is not None:
            self.snapshots.unpin(handle, fence)
        self.ids.give_back([self.slot[handle]], fence)
        self.slot[handle] = 0

    def can_reload(self, handle: int) -> Shortage | None:
        return self._no_slot()

    def reload(self, handle: int) -> None:
        self.slot[handle] = self.ids.take(1)[0]

    def rebuilds(self, opening: Opening) -> bool:
        return True

    def held(self) -> Mapping[str, tuple[int, int]]:
        held = {"slots": (self.ids.num_free + self.ids.num_cooling, self.ids.num_ids)}
        if self.snapshots is not None:
            pool = self.snapshots.kept.pool
            held["snapshots"] = pool.num_free + pool.num_cooling, pool.num_ids
        return held

    def _no_slot(self) -> Shortage | None:
        if self.ids.num_free:
            return None
        return Shortage(key=self.key, need=1, free=0, cooling=self.ids.num_cooling, unit="slots")


def _shape(block: Tensor, places: int) -> tuple[int, ...]:
    return (block.shape[0], places, *block.shape[2:])
