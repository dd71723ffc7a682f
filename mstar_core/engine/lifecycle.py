"""The life of a step. The only file that calls room, take, plan and commit.

::

    launch   declare → choose a bucket (pure) → room of all → take of all → plan → stage (one copy)
             → replay, or eager forward → commit → event                               (entry N)
    retire   wait for the event → read → free what entry N fenced                      (in order)

A refused launch has touched nothing. A step that was begun is an entry, also where it raises: it is
retired in its turn, so that what it named stays fenced, and raises then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs
import numpy as np
import torch
from attrs import define, field, frozen

from mstar_core.clock import Laps
from mstar_core.engine.capture import Captured, CapturedBuckets
from mstar_core.engine.device import Device, Event
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.residence import RowRing
from mstar_core.engine.row_check import RowCheck
from mstar_core.engine.staging import Landing, ReadBack, Staging, pack_reads
from mstar_core.engine.steady import CellRing, Countdown, SteadyBatch, countdowns_of
from mstar_core.errors import DeviceFault
from mstar_core.resident.writes import joined
from mstar_core.resources.fence import Fences
from mstar_core.sched.scheduler import Row
from mstar_core.step import Bucket, Lease, Outcome, Shortage, Step


@frozen(kw_only=True, eq=False)
class Entry:
    """One launched step, until it is retired."""

    number: int
    step: Step
    rows: Sequence[Row]
    event: Event
    landing: Landing
    error: Exception | None
    """What was raised while the step was planned or launched."""


@define(kw_only=True, eq=False)
class StepCounts:
    """How many steps went which way."""

    launched: int = 0
    replayed: int = 0
    eager: int = 0
    steady: int = 0
    """Replayed steps that were launched without asking or planning."""
    refused: int = 0
    rows: int = 0
    by_walk: dict[str, int] = field(factory=dict)
    eager_by_walk: dict[str, int] = field(factory=dict)


@define(kw_only=True, eq=False)
class Lifecycle:
    """Launches steps and retires entries, in order."""

    nodes: Mapping[str, NodeRuntime]
    device: Device
    fences: Fences
    staging: Staging
    read_back: ReadBack
    buckets: CapturedBuckets
    rows: Mapping[str, RowRing]
    """Per node with device tables: where whole rows are sent from."""
    timeout_s: float
    check: RowCheck | None = None
    """``debug.row_check``."""
    counts: StepCounts = field(factory=StepCounts)
    laps: Laps | None = field(init=False, default=None)
    """Where the host's time goes, while somebody measures."""
    _next: int = field(init=False, default=0)
    _rings: dict[Bucket, CellRing] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for bucket, captured in self.buckets.captured.items():
            if captured.resident:
                layout, depth = captured.block.layout, self.read_back.depth
                self._rings[bucket] = CellRing(self.device, layout, depth)

    def launch(self, step: Step, rows: Sequence[Row]) -> Entry | Shortage:
        """Launch ``step``, or say what is missing; then nothing was changed."""
        node = self.nodes[step.node]
        step.parts = node.declare(step)
        bucket = self.buckets.choose(step, node.variant(step))
        for key, part in step.parts.items():
            short = node.resources[key].room(part)
            if short is not None:
                self.counts.refused += 1
                return short
        for key, part in step.parts.items():
            node.resources[key].take(part)
        step.lease = None if bucket is None else Lease(bucket=bucket)
        step.number = self._next
        self._next += 1
        landing = self.read_back.lend()
        error = self._start(node, step, rows, landing)
        self._count(step)
        return Entry(
            number=step.number,
            step=step,
            rows=rows,
            event=self.device.record(),
            landing=landing,
            error=error,
        )

    def steady_batch(self, entry: Entry) -> SteadyBatch | None:
        """What ``entry`` would be again, if it was resident; the next step may be launched so."""
        lease = entry.step.lease
        captured = None if lease is None else self.buckets.of(lease.bucket)
        if captured is None or not captured.resident or entry.error is not None:
            return None
        node, rows = self.nodes[entry.step.node], entry.rows
        steps_B = np.array([row.limit - row.track.sampled for row in rows], np.int64)
        return SteadyBatch(
            node=node,
            step=entry.step,
            rows=rows,
            captured=captured,
            slots_B=node.tables.slots.of(entry.step.handles_B),
            advance_N=node.advance(entry.step.walk),
            countdowns=countdowns_of(node, entry.step, steps_B),
            left=int(steps_B.min()),
        )

    def launch_steady(self, batch: SteadyBatch) -> Entry | Shortage:
        """The batch's next step: as :meth:`launch` would, without asking what cannot differ."""
        crossing = [(c, rows) for c in batch.countdowns if len(rows := c.crossing())]
        for countdown, rows in crossing:
            short = countdown.resource.room(countdown.only(rows))
            if short is not None:
                self.counts.refused += 1
                return short
        planner, landing = batch.node.tables, self.read_back.lend()
        planner.steady(batch.slots_B)
        self._lap("ask")
        error: Exception | None = None
        try:
            if crossing:
                self._cross(batch, crossing)
            self._lap("plan")
            self.device.run(partial(batch.captured.replay, landing))
            self._lap("launch")
            self._expect(self._next, batch.node, batch.step)
            batch.node.commit(batch.step)
            self._copy_behind(batch.node, batch.step, self._next)
            planner.commit(batch.slots_B, batch.advance_N)
            for countdown in batch.countdowns:
                countdown.count()
        except DeviceFault:
            raise
        except Exception as raised:
            error = raised
        self._lap("commit")
        number = self._next
        self._next += 1
        self._count(batch.step)
        self.counts.steady += 1
        return Entry(
            number=number,
            step=batch.step,
            rows=batch.rows,
            event=self.device.record(),
            landing=landing,
            error=error,
        )

    def _cross(self, batch: SteadyBatch, crossing: Sequence[tuple[Countdown, np.ndarray]]) -> None:
        """Take for the rows that cross, and send their cells."""
        for countdown, rows in crossing:
            countdown.resource.take(countdown.only(rows))
            countdown.took(rows)
        rows = crossing[0][1]
        if len(crossing) > 1:
            rows = np.unique(np.concatenate([rows for _, rows in crossing]))
        handles_B, slots_B = batch.step.handles_B[rows], batch.slots_B[rows]
        tables, ring = batch.node.tables, self._rings[batch.captured.bucket]
        index_K, value_K = tables.crossed(handles_B, slots_B)
        if len(index_K) <= ring.num_cells:
            ring.send(batch.captured, batch.slots_B, index_K, value_K)
        else:  # small pages, many of them: each row's are one run
            cells = zip(index_K.tolist(), value_K[:, None], strict=True)
            self.rows[batch.node.name].send(joined(list(cells)), tables.store_RC)

    def copies(self, issue: Callable[[int], None]) -> Entry:
        """An entry of copies alone; ``issue(number)`` makes them."""
        number = self._next
        self._next += 1
        issue(number)
        none, no = np.zeros(0, np.int64), np.zeros(0, bool)
        step = Step(
            node="",
            walk="",
            handles_B=none,
            spans_B=none,
            carry_B=no,
            samples_B=no,
            starts_B=none,
            number=number,
        )
        landing = Landing(self.device, torch.zeros(0, dtype=torch.uint8))
        event = self.device.record()
        return Entry(number=number, step=step, rows=(), event=event, landing=landing, error=None)

    def retire(self, entry: Entry) -> Outcome:
        """Wait for the oldest entry, free what it fenced, and give what it read.

        Raises what its launch or forward raised, or DeviceFault; it is retired all the same.
        """
        try:
            entry.event.wait(self.timeout_s)
            if entry.error is not None:
                raise entry.error
            arrays = entry.landing.arrays()
            if self.check is not None:
                self.check.settle(entry.number, arrays, [row.state.id for row in entry.rows])
            step = entry.step
            return Outcome(number=entry.number, arrays=arrays, walk=step.walk, spans_B=step.spans_B)
        finally:
            self.fences.retire(entry.number)

    def _start(
        self, node: NodeRuntime, step: Step, rows: Sequence[Row], landing: Landing
    ) -> Exception | None:
        """Plan, stage, launch and commit. What is raised belongs to the entry."""
        try:
            for key in node.copying:
                self._run_copy(node.copies(key).before(step.parts[key], step.number))
            captured = None if step.lease is None else self.buckets.of(step.lease.bucket)
            if captured is not None and captured.resident:
                self._send_resident(node, step, captured, landing)
            else:
                self._send(node, step, rows, captured, landing)
            node.commit(step)
            self._copy_behind(node, step, step.number)
        except DeviceFault:
            raise
        except Exception as error:
            return error
        return None

    def _send(
        self,
        node: NodeRuntime,
        step: Step,
        rows: Sequence[Row],
        captured: Captured | None,
        landing: Landing,
    ) -> None:
        walk, plans = node.walks[step.walk], node.plan(step, step.lease)
        if captured is None:
            tensors = self.staging.stage(node.arrays(step, rows, plans, None))
            self.device.run(lambda: landing.copy_out(*pack_reads(node.run(walk, plans, tensors))))
            return
        captured.check_bounds(plans)
        self.staging.stage(node.arrays(step, rows, plans, captured.bucket), captured.block)
        self.device.run(lambda: captured.replay(landing))

    def _send_resident(
        self, node: NodeRuntime, step: Step, captured: Captured, landing: Landing
    ) -> None:
        """Send what the tables lack: nothing, a few cells, or whole rows; then replay."""
        planner = node.tables
        writes = planner.plan(step.handles_B)
        if writes.runs:
            self.rows[node.name].send(writes.runs, planner.store_RC)
        same = captured.received is not None and np.array_equal(captured.received, writes.slots_B)
        if len(writes.index_K) or not same:
            ring = self._rings[captured.bucket]
            ring.send(captured, writes.slots_B, writes.index_K, writes.value_K)
        self.device.run(lambda: captured.replay(landing))
        self._expect(step.number, node, step)
        planner.commit(writes.slots_B, node.advance(step.walk))

    def _expect(self, number: int, node: NodeRuntime, step: Step) -> None:
        """A resident step has been launched: with the row check on, what should come of it."""
        if self.check is not None:
            self.check.expect(number, node, step, node.resident_plans(step))

    def _copy_behind(self, node: NodeRuntime, step: Step, number: int) -> None:
        """What the node's resources copy of what the entry has left."""
        for key in node.copying:
            self._run_copy(node.copies(key).behind(step.parts[key], number))

    def _run_copy(self, copy: Callable[[], None] | None) -> None:
        if copy is not None:
            self.device.run(copy)

    def _lap(self, name: str) -> None:
        if self.laps is not None:
            self.laps.lap(name)

    def _count(self, step: Step) -> None:
        counts = self.counts
        counts.launched += 1
        counts.rows += step.num_rows
        counts.by_walk[step.walk] = counts.by_walk.get(step.walk, 0) + 1
        if step.lease is None:
            counts.eager += 1
            counts.eager_by_walk[step.walk] = counts.eager_by_walk.get(step.walk, 0) + 1
        else:
            counts.replayed += 1

    def snapshot(self) -> dict[str, object]:
        """The counts so far, as plain values; any thread may ask."""
        counts = attrs.asdict(self.counts, recurse=False)
        tables = {name: node.planner for name, node in self.nodes.items()}
        resident = {n: attrs.asdict(p.counts) for n, p in tables.items() if p is not None}
        plain = {k: dict(v) if isinstance(v, dict) else v for k, v in counts.items()}
        return {**plain, "resident": resident}
