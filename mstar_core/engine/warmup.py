"""Warmup: from a wired engine to one that serves, phase by phase, with a report.

::

    wire → review → memory → weights → ask hooks → capture, largest first → seal → check → report
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from attrs import define, field, frozen

from mstar_core.engine.capture import (
    CapturedBuckets,
    capture_all,
    graph_bytes,
    num_read,
    require_all,
    wanted_buckets,
)
from mstar_core.engine.combined import agreed_splits
from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Device
from mstar_core.engine.door import Limits
from mstar_core.engine.graphs import GraphBackend
from mstar_core.engine.lifecycle import Lifecycle
from mstar_core.engine.memory import bytes_by_owner, free_host_bytes, memory_for
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.offload import Offloads
from mstar_core.engine.pressure import Pressure
from mstar_core.engine.report import BucketReport, NodeReport, WarmupReport
from mstar_core.engine.residence import give_tables, walk_refusal
from mstar_core.engine.row_check import RowCheck
from mstar_core.engine.sizing import claim_staging, row_rings
from mstar_core.engine.staging import ReadBack, Staging
from mstar_core.engine.tenancy import Tenancy
from mstar_core.engine.weights import fill_weights
from mstar_core.engine.wire import Wired
from mstar_core.errors import ConfigError, Refusal, Words
from mstar_core.plugins import (
    collect_capture_refusals,
    collect_resident_walks,
)
from mstar_core.sched import Line, Scheduler
from mstar_core.step import Bucket

log = logging.getLogger(__name__)
Progress = Callable[[str, int, int], None]
"""``progress(phase, done, total)``; bytes while loading, buckets while capturing."""


Residents = dict[str, tuple[frozenset[str], tuple[Refusal, ...]]]
"""Node → its resident walks, and every reason why others are not."""


CAPTURES_SIZED_BY = ("engine.kv_memory", "engine.token_budget", "engine.capture.rows")


@frozen(kw_only=True)
class WarmupEvent:
    """What the hook ``warmup_event`` is told as each phase ends."""

    phase: str
    seconds: float


@define(eq=False, kw_only=True)
class Warmup:
    """One warmup over a wired engine."""

    wired: Wired
    progress: Progress
    report: WarmupReport = field(init=False)

    def __attrs_post_init__(self) -> None:
        wired = self.wired
        self.report = WarmupReport(
            model=wired.resolved.config.model.name,
            checkpoint=str(wired.folder) if wired.model.has_checkpoint else "no checkpoint",
            device=str(wired.device),
            dtype=str(wired.dtype).removeprefix("torch."),
            graphs="off",
            max_context=wired.max_context,
            findings=list(wired.findings),
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase, and tell the observers when it ends."""
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        self.report.seconds[name] = seconds
        told = self.wired.wiring.ask("warmup_event", event=WarmupEvent(phase=name, seconds=seconds))
        self.report.findings.extend(told.findings)

    def review(self) -> None:
        """Any plugin may object to the plan. Raises ConfigError with every objection."""
        asked = self.wired.wiring.ask("review_plan", plan=self.report)
        self.report.findings.extend(asked.findings)
        if asked.value:
            raise ConfigError(
                where="review_plan",
                got=Words("; ".join(map(str, asked.value))),
                want="a plan that no plugin objects to",
                fix="mend what each objection names, or disable the plugin",
            )

    def ask_nodes(self) -> Residents:
        """The hooks about walks and splits, with their validations."""
        residents = {}
        for name, node in self.wired.nodes.items():
            residents[name] = collect_resident_walks(
                self.wired.wiring, name, node.submodule, node.resources, set(node.walks)
            )
            node.splits = agreed_splits(self.wired.wiring, node)
        return residents

    def give_tables(self, residents: Residents, captures: bool) -> None:
        """Device tables for the walks that are resident; the others' reasons are added."""
        config = self.wired.resolved.config.engine
        for name, node in self.wired.nodes.items():
            walks, refusals = residents[name]
            off = _off(name, config.resident, captures) if walks else None
            asked = {walk: off or walk_refusal(node, node.walks[walk]) for walk in sorted(walks)}
            kept = [walk for walk, refused in asked.items() if refused is None]
            refused = tuple(dict.fromkeys(r for r in asked.values() if r is not None))
            residents[name] = frozenset(kept), (*refusals, *refused)
            if kept:
                width = max(config.capture_rows)
                give_tables(node, kept, width, self.wired.table, self.wired.buffers)
                node.row_check = self.wired.resolved.config.debug.row_check

    def capture(self, graphs: GraphBackend | None) -> CapturedBuckets:
        """Capture the buckets of every node; what is refused runs eagerly."""
        config, buckets = self.wired.resolved.config.engine, CapturedBuckets()
        if graphs is None:
            return buckets
        for name, node in self.wired.nodes.items():
            wanted = wanted_buckets(node, config.capture_rows, config.capture_tokens)
            ask = partial(self.capture_refusals, name, node)
            taken, dropped = capture_all(node, wanted, graphs, self.wired.buffers, ask)
            for captured in taken:
                buckets.add(captured)
            buckets.dropped.update(dropped)
            for bucket, refusals in dropped.items():
                log.warning("bucket %s of node %s runs eagerly: %s", bucket, name, refusals[0])
            self.progress("capture", len(taken), len(wanted))
        if config.capture.require:
            require_all(buckets.dropped)
        return buckets

    def capture_refusals(self, name: str, node: NodeRuntime, bucket: Bucket) -> Sequence[Refusal]:
        """Every objection to capturing one bucket, of plugins, resources and backends."""
        backends = self.wired.chooser.bound.get(name, {})
        return collect_capture_refusals(self.wired.wiring, name, bucket, node.resources, backends)

    def describe_nodes(
        self,
        residents: Residents,
        buckets: CapturedBuckets,
    ) -> None:
        """The report's rows per node, and its memory."""
        for name, node in self.wired.nodes.items():
            rows = [
                BucketReport(bucket=str(b), captured=True)
                for b in buckets.captured
                if b.walk in node.walks
            ]
            rows += [
                BucketReport(bucket=str(b), captured=False, refusals=r)
                for b, r in buckets.dropped.items()
                if b.walk in node.walks
            ]
            (walks, refusals), tables = residents[name], node.planner
            self.report.nodes.append(
                NodeReport(
                    name=name,
                    resources={k: r.kind for k, r in node.resources.items()},
                    choices=tuple(c for c in self.wired.chooser.choices.values() if c.node == name),
                    buckets=rows,
                    resident_walks=tuple(sorted(walks)),
                    resident_rows=0 if tables is None else tables.slots.num_rows - 2,
                    resident_cells=0 if tables is None else tables.layout.num_cells,
                    resident_refusals=refusals,
                )
            )
        reuse = self.wired.reuse
        self.report.prefix_interval = None if reuse is None else reuse.interval
        self.report.prefix_refusals = self.wired.reuse_refusals
        modules = {name: node.submodule for name, node in self.wired.nodes.items()}
        self.report.memory = bytes_by_owner(modules, self.wired.buffers) | graph_bytes(
            self.wired.nodes, buckets
        )


def warm_up(
    wired: Wired, device: Device, graphs: GraphBackend | None, progress: Progress
) -> tuple[EngineCore, WarmupReport]:
    """Fill, capture, seal and check a wired engine. Raises ConfigError or CheckpointError."""
    warmup = Warmup(wired=wired, progress=progress)
    with warmup.phase("plan"):
        warmup.review()
        residents = warmup.ask_nodes()
    with warmup.phase("weights"):
        warmup.report.set_aside = fill_weights(wired, progress)
        warmup.give_tables(residents, graphs is not None)
    with memory_for("the blocks that steps travel in", ("engine.max_rows", "engine.token_budget")):
        staging, read_back = claim_staging(wired, device)
    inside = memory_for("what captured steps keep inside", CAPTURES_SIZED_BY)
    with warmup.phase("capture"), torch.no_grad(), inside:
        warmup.report.graphs = "off" if graphs is None else graphs.name
        buckets = warmup.capture(graphs)
    read_back = read_back.for_at_least(max(map(num_read, buckets.captured.values()), default=0))
    device.synchronize()  # pools and weights were filled on another stream
    wired.buffers.seal()
    warmup.describe_nodes(residents, buckets)
    core = _core(wired, device, staging, read_back, buckets)
    core.check_conserved()
    wired.wiring.seal()
    return core, warmup.report


def _off(node: str, setting: str, captures: bool) -> Refusal | None:
    """Why no walk of the node is resident, whatever its resources say."""
    if setting == "auto" and captures:
        return None
    return Refusal(
        code="resident-off",
        where=f"node {node}",
        got="engine.resident: off" if setting == "off" else "no graphs: every step runs eagerly",
        want="engine.resident: auto, and engine.graphs other than off",
        fix="nothing to do: walks are planned on the host",
        owner="config",
    )


def _core(
    wired: Wired,
    device: Device,
    staging: Staging,
    read_back: ReadBack,
    buckets: CapturedBuckets,
) -> EngineCore:
    """The core over what was built."""
    config = wired.resolved.config.engine
    lifecycle = Lifecycle(
        nodes=wired.nodes,
        device=device,
        fences=wired.fences,
        staging=staging,
        read_back=read_back,
        buckets=buckets,
        rows=row_rings(wired, device),
        check=RowCheck() if wired.resolved.config.debug.row_check else None,
        timeout_s=config.step_timeout_s,
    )
    rings = wired.rings
    scheduler = Scheduler(
        walks=wired.walks,
        max_rows=config.max_rows,
        token_budget=config.token_budget,
        min_chunk=config.min_chunk,
        waiting_items=lambda edge, handle: rings[edge].waiting(handle),
        edge_room=lambda edge, handle: rings[edge].room(handle),
        chunks={name: ring.edge.chunks for name, ring in rings.items()},
        cuts={} if wired.reuse is None else wired.reuse.cuts,
    )
    line = Line(config.max_rows)
    tenancy = Tenancy(nodes=wired.nodes, rings=rings, table=wired.table, fences=wired.fences)
    return EngineCore(
        nodes=wired.nodes,
        walks=wired.walks,
        graph=wired.model.graph(),
        tenancy=tenancy,
        lifecycle=lifecycle,
        scheduler=scheduler,
        line=line,
        pressure=_pressure(wired, lifecycle, scheduler, tenancy, line),
        in_flight=config.in_flight,
        reuse=wired.reuse,
        limits=_limits(wired),
        conservation=wired.resolved.config.debug.conservation,
    )


def _limits(wired: Wired) -> Limits:
    limits = wired.resolved.config.limits
    return Limits(
        context=wired.max_context,
        prompt=limits.max_prompt_tokens,
        new=limits.max_new_tokens,
        waiting=limits.max_waiting,
        waiting_tokens=limits.max_waiting_tokens,
    )


def _pressure(
    wired: Wired, lifecycle: Lifecycle, scheduler: Scheduler, tenancy: Tenancy, line: Line
) -> Pressure:
    """What a shortage is answered with, and its bounds."""
    config, host_bytes = wired.resolved.config, wired.resolved.config.limits.host_offload_bytes
    if host_bytes is None:
        host_bytes = free_host_bytes() // 4
        wired.resolved.derive("limits.host_offload_bytes", host_bytes, "a quarter of what is free")
    return Pressure(
        nodes=wired.nodes,
        lifecycle=lifecycle,
        scheduler=scheduler,
        tenancy=tenancy,
        offloads=Offloads(nodes=wired.nodes, rings=wired.rings, lifecycle=lifecycle),
        line=line,
        run_again=wired.model.run_again,
        preempt=config.engine.preempt,
        host_bytes=host_bytes,
        parameters=sum(p.numel() for n in wired.nodes.values() for p in n.submodule.parameters()),
        chunk=config.engine.token_budget if config.engine.admission == "take" else None,
    )
