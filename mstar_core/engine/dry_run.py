"""A dry run: everything that warmup decides and claims, on the meta device, without weights.

It claims what ``Engine.open`` claims, so its memory is the same sum but for what graphs keep
inside, which only a capture tells; nothing is allocated.
"""

from __future__ import annotations

from functools import partial

import torch

from mstar_core.config.resolve import Resolved
from mstar_core.engine.capture import CapturedBuckets, claim_block, wanted_buckets
from mstar_core.engine.device import CpuDevice
from mstar_core.engine.device_memory import pick_device
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.opening import check_graphs, load_wiring
from mstar_core.engine.report import BucketReport, WarmupReport
from mstar_core.engine.residence import resident_arrays
from mstar_core.engine.sizing import claim_staging
from mstar_core.engine.staging import StaticBlock
from mstar_core.engine.warmup import Warmup
from mstar_core.engine.wire import Wired, wire
from mstar_core.fixed import FixedBuffers
from mstar_core.model.checkpoint import open_checkpoint
from mstar_core.model.weights import plan_weights
from mstar_core.step import Bucket


def dry_run(resolved: Resolved, *, offline: bool = False) -> WarmupReport:
    """The report of a start that was not made.

    Raises ConfigError, CheckpointError (tensors that do not fit included) or PluginError.
    """
    target = pick_device(resolved.config.device)
    check_graphs(resolved.config.engine.graphs, target)
    wiring = load_wiring(resolved)
    wired = wire(resolved, wiring, torch.device("meta"), target=target, offline=offline)
    warmup = Warmup(wired=wired, progress=lambda phase, done, total: None)
    warmup.report.device = f"{target} (dry run)"
    with warmup.phase("plan"):
        warmup.review()
        residents = warmup.ask_nodes()
    with warmup.phase("checkpoint"):
        warmup.report.set_aside = _match_weights(wired)
    kind = resolved.config.engine.graphs
    captures = kind in ("cuda", "recorder") or (kind == "auto" and target == "cuda")
    warmup.give_tables(residents, captures)
    claim_staging(wired, CpuDevice())
    buckets = CapturedBuckets()
    warmup.report.graphs = kind if captures else "off"
    warmup.report.counts_graphs = not captures
    rows = _claim_buckets(warmup, buckets) if captures else {}
    warmup.describe_nodes(residents, buckets)
    for node in warmup.report.nodes:
        node.buckets.extend(rows.get(node.name, []))
    return warmup.report


def _match_weights(wired: Wired) -> tuple[str, ...]:
    if not wired.model.has_checkpoint or wired.resolved.config.model.load == "random":
        return ()
    modules = {name: node.submodule for name, node in wired.nodes.items()}
    maps = {name: wired.model.weight_map(name) for name in modules}
    checkpoint = open_checkpoint(wired.folder, wired.model.weight_folders)
    plan = plan_weights(
        modules, maps, checkpoint.shapes, dtypes=checkpoint.dtypes, where=str(wired.folder)
    )
    return plan.set_aside


def _claim_buckets(warmup: Warmup, buckets: CapturedBuckets) -> dict[str, list[BucketReport]]:
    """Claim the static block of every bucket that nobody refuses; refused ones are dropped."""
    wired, config = warmup.wired, warmup.wired.resolved.config.engine
    found: dict[str, list[BucketReport]] = {}
    for name, node in wired.nodes.items():
        ask = partial(warmup.capture_refusals, name, node)
        for bucket in wanted_buckets(node, config.capture_rows, config.capture_tokens):
            refusals = tuple(ask(bucket))
            if refusals:
                buckets.dropped[bucket] = refusals
            else:
                _claim_block(node, bucket, wired.buffers)
                found.setdefault(name, []).append(BucketReport(bucket=str(bucket), captured=True))
    return found


def _claim_block(node: NodeRuntime, bucket: Bucket, buffers: FixedBuffers) -> None:
    """The block that capturing ``bucket`` claims."""
    if bucket.walk in node.resident_walks:
        arrays = resident_arrays(node.tables, bucket, None)
        StaticBlock.claim(buffers, f"{node.name} {bucket} resident", arrays)
    else:
        claim_block(node, bucket, buffers)
