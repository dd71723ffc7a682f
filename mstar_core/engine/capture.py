"""Buckets: which shapes are captured, which were refused and why, and which one a step takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
import torch
from attrs import define, field
from torch import Tensor

from mstar_core.engine.graphs import CaptureRefused, Graph, GraphBackend
from mstar_core.engine.node import RESIDENT, NodeRuntime
from mstar_core.engine.residence import resident_arrays
from mstar_core.engine.staging import Key, Landing, ReadPlace, StaticBlock, pack_reads
from mstar_core.errors import ConfigError, Refusal, SealedError, Words
from mstar_core.fixed import FixedBuffers
from mstar_core.model.walks import Walk
from mstar_core.resident.check import probes
from mstar_core.step import Bucket, CombinedSplit, Lease, Plan, Step


@define(kw_only=True, eq=False)
class Captured:
    """One captured bucket: its graph over its static block."""

    bucket: Bucket
    graph: Graph
    block: StaticBlock
    bounds: Mapping[tuple[str, str], int]
    """Every int of every plan, as the graph has baked it in."""
    resident: bool = False
    """Its plans come off the device tables."""
    places: Mapping[str, ReadPlace] = field(factory=dict)
    """Where each output lies in what the graph packs for the host."""
    received: np.ndarray | None = None
    """The row numbers that a resident bucket's block holds."""

    def replay(self, landing: Landing) -> None:
        """Run the graph, then send what the host reads."""
        self.graph.replay()
        landing.copy_out(self.graph.outputs[PACKED], self.places)

    def check_bounds(self, plans: Mapping[str, Plan]) -> None:
        """Raise SealedError where a plan's int is not the bucket's."""
        for key, value in plan_ints(plans).items():
            if self.bounds[key] != value:
                raise SealedError(
                    where=f"bucket {self.bucket}, plan {'.'.join(key)}",
                    got=value,
                    want=f"{self.bounds[key]}, as it was captured",
                    fix="with a lease, ints of a plan are the bucket's bounds, never the step's",
                )


@define(eq=False, kw_only=True)
class CapturedBuckets:
    """Every bucket that was captured, and those that were dropped."""

    captured: dict[Bucket, Captured] = field(factory=dict)
    dropped: dict[Bucket, tuple[Refusal, ...]] = field(factory=dict)
    _by_walk: dict[tuple[str, int], list[Bucket]] = field(init=False, factory=dict)

    def add(self, captured: Captured) -> None:
        """Offer a captured bucket to steps; smaller ones are preferred."""
        bucket = captured.bucket
        self.captured[bucket] = captured
        group = self._by_walk.setdefault((bucket.walk, bucket.variant), [])
        group.append(bucket)
        group.sort(key=lambda b: (b.tokens, b.lead, b.rows))

    def of(self, bucket: Bucket) -> Captured:
        """The captured bucket."""
        return self.captured[bucket]

    def choose(self, step: Step, variant: int) -> Bucket | None:
        """The smallest captured bucket that holds the step, or None: the step runs eagerly.

        A packed bucket with tokens to spare needs a row to spare: the padding row owns them. Of
        mixed buckets of as many tokens, the one whose lead has room for the decode rows.
        """
        rows, tokens = step.num_rows, step.num_tokens
        found: Bucket | None = None
        for bucket in self._by_walk.get((step.walk, variant), ()):
            if bucket.rows < rows or bucket.tokens < tokens:
                continue
            if bucket.kind != "decode" and bucket.tokens > tokens and bucket.rows == rows:
                continue
            if found is not None and found.tokens < bucket.tokens:
                break
            found = bucket
            if bucket.kind != "mixed" or bucket.lead >= step.carry_B.sum():
                break
        return found


PACKED = "packed"
PROMPT_ROWS = 8
"""Prompts in one captured step at most."""


@define(eq=False)
class PackedForward:
    """A forward whose outputs leave it as one packed tensor."""

    forward: Callable[[], Mapping[str, Tensor]]
    places: Mapping[str, ReadPlace] = field(factory=dict, init=False)

    def __call__(self) -> dict[str, Tensor]:
        packed, self.places = pack_reads(self.forward())
        return {PACKED: packed}


def plan_ints(plans: Mapping[str, Plan]) -> dict[tuple[str, str], int]:
    """Every int field of every plan."""
    return {
        (key, f.name): value
        for key, plan in plans.items()
        for f in attrs.fields(type(plan))
        if type(value := getattr(plan, f.name)) is int
    }


def wanted_buckets(
    node: NodeRuntime, row_sizes: Sequence[int], token_sizes: Sequence[int]
) -> list[Bucket]:
    """The buckets to try for a node, largest first; see :func:`shapes_of`."""
    variants = sorted({v for r in node.resources.values() for v in r.variants()} or {0})
    found = [
        attrs.evolve(bucket, variant=variant)
        for walk in node.walks.values()
        if walk.capture
        for bucket in shapes_of(walk, node.splits, row_sizes, token_sizes)
        for variant in variants
    ]
    return sorted(found, key=lambda b: (b.tokens, b.rows), reverse=True)


def shapes_of(
    walk: Walk,
    splits: Mapping[str, CombinedSplit],
    row_sizes: Sequence[int],
    token_sizes: Sequence[int],
) -> list[Bucket]:
    """Decode by rows, prompts by tokens or their walk's own items, combined walks by tokens and
    every second row count.

    A combined walk has room for as many decode rows as the row count says, leaving a token for a
    prompt, and for as many prompt rows as a prompt walk has: the largest row count at most.
    """
    if walk.is_decode:
        return [Bucket(walk=walk.name, rows=n, tokens=n, kind="decode") for n in row_sizes]
    if walk.capture_items:
        return [
            Bucket(walk=walk.name, rows=n + 1, tokens=n, kind="prefill") for n in walk.capture_items
        ]
    most = max(row_sizes, default=1)
    if not walk.combines:
        rows = min(PROMPT_ROWS, most) + 1
        return [Bucket(walk=walk.name, rows=rows, tokens=n, kind="prefill") for n in token_sizes]
    split = splits.get(walk.name)
    bound = 0 if split is None else split.max_decode_rows
    return [
        Bucket(
            walk=walk.name,
            rows=min(beside + PROMPT_ROWS, most) + 1,
            tokens=n,
            kind="mixed",
            lead=min(beside, bound),
        )
        for n in token_sizes
        for beside in sorted({min(size, n - 1) for size in row_sizes[::-2]} - {0})
    ]


def padding_step(node: NodeRuntime, walk: Walk, bucket: Bucket) -> Step:
    """A step of no rows, whose plan with a lease fixes every shape of ``bucket``."""
    none, no = np.zeros(0, np.int64), np.zeros(0, bool)
    step = Step(
        node=node.name,
        walk=walk.name,
        handles_B=none,
        spans_B=none,
        carry_B=no,
        samples_B=no,
        starts_B=none,
        lease=Lease(bucket=bucket),
    )
    step.parts = node.declare(step)
    return step


def claim_block(
    node: NodeRuntime, bucket: Bucket, buffers: FixedBuffers
) -> tuple[StaticBlock, dict[str, Plan]]:
    """The static block of a bucket, filled with its padding-only plan, and that plan."""
    step = padding_step(node, node.walks[bucket.walk], bucket)
    plans = node.plan(step, step.lease)
    arrays = node.arrays(step, (), plans, bucket)
    block = StaticBlock.claim(buffers, f"{node.name} {bucket}", arrays)
    for key, view in block.views.items():
        view.copy_(torch.from_numpy(arrays[key]))
    return block, plans


def capture_bucket(
    node: NodeRuntime, bucket: Bucket, graphs: GraphBackend, buffers: FixedBuffers
) -> Captured:
    """Capture one bucket over a static block of its own. Raises CaptureRefused."""
    if bucket.walk in node.resident_walks:
        return _capture_resident(node, bucket, graphs, buffers)
    walk = node.walks[bucket.walk]
    block, plans = claim_block(node, bucket, buffers)
    name = f"node {node.name}, bucket {bucket}"
    forward = PackedForward(lambda: node.run(walk, plans, block.views))
    graph = graphs.capture(name, forward, [block.block])
    return Captured(
        bucket=bucket,
        graph=graph,
        block=block,
        bounds=plan_ints(plans),
        places=forward.places,
    )


def _capture_resident(
    node: NodeRuntime, bucket: Bucket, graphs: GraphBackend, buffers: FixedBuffers
) -> Captured:
    """The capture of a bucket whose plans are made in the graph, off the device tables."""
    arrays = resident_arrays(node.tables, bucket, None)
    block = StaticBlock.claim(buffers, f"{node.name} {bucket} resident", arrays)
    name = f"node {node.name}, bucket {bucket}, resident"
    forward = PackedForward(lambda: _resident_reads(node, bucket, block.views))
    graph = graphs.capture(name, forward, [block.block])
    return Captured(
        bucket=bucket, graph=graph, block=block, bounds={}, resident=True, places=forward.places
    )


def graph_bytes(nodes: Mapping[str, NodeRuntime], buckets: CapturedBuckets) -> dict[str, int]:
    """``graphs NODE`` → bytes that its graphs keep inside, for nodes that have any."""
    found: dict[str, int] = {}
    for name, node in nodes.items():
        inside = [c.graph.num_bytes for b, c in buckets.captured.items() if b.walk in node.walks]
        if inside:
            found[f"graphs {name}"] = sum(inside)
    return found


def num_read(captured: Captured) -> int:
    """Bytes that a replay sends to the host."""
    return captured.graph.outputs[PACKED].numel()


def _resident_reads(
    node: NodeRuntime, bucket: Bucket, views: Mapping[Key, Tensor]
) -> dict[str, Tensor]:
    reads, plans = node.run_resident(bucket, views)
    if node.row_check:
        reads |= probes(node.tables.store_RC, views[RESIDENT, "slots_B"], plans)
    return reads


def capture_all(
    node: NodeRuntime,
    wanted: Sequence[Bucket],
    graphs: GraphBackend,
    buffers: FixedBuffers,
    ask: Callable[[Bucket], Sequence[Refusal]],
) -> tuple[list[Captured], dict[Bucket, tuple[Refusal, ...]]]:
    """Capture what nobody refuses; the rest is dropped with every reason."""
    taken: list[Captured] = []
    dropped: dict[Bucket, tuple[Refusal, ...]] = {}
    for bucket in wanted:
        refusals = tuple(ask(bucket))
        if not refusals:
            try:
                taken.append(capture_bucket(node, bucket, graphs, buffers))
                continue
            except CaptureRefused as refused:
                refusals = (refused.refusal,)
        dropped[bucket] = refusals
    return taken, dropped


def require_all(dropped: Mapping[Bucket, tuple[Refusal, ...]]) -> None:
    """Raise ConfigError where buckets were dropped (``engine.capture.require``)."""
    if dropped:
        reasons = "; ".join(f"{b}: {r[0].got}" for b, r in dropped.items())
        raise ConfigError(
            where="engine.capture.require",
            got=Words(f"{len(dropped)} buckets dropped ({reasons})"),
            want="every bucket captured",
            fix="mend the refusals, or set engine.capture.require to false",
        )
