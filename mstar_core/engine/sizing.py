"""How large the rings must be that steps travel in: the largest step that can be declared."""

from __future__ import annotations

import attrs
import numpy as np

from mstar_core.dtypes import torch_dtype_named
from mstar_core.engine.capture import padding_step
from mstar_core.engine.device import Device
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.residence import RowRing, resident_arrays
from mstar_core.engine.staging import ALIGN_BYTES, ReadBack, Staging
from mstar_core.engine.wire import Wired
from mstar_core.step import Bucket, Lease


def claim_staging(wired: Wired, device: Device) -> tuple[Staging, ReadBack]:
    """The rings that steps travel in, sized from the largest step that can be declared."""
    config = wired.resolved.config.engine
    depth = config.in_flight + 1
    sent = max(_largest_step(node, wired) for node in wired.nodes.values())
    read = max(_largest_read(node, wired) for node in wired.nodes.values())
    return Staging(device, wired.buffers, depth, sent), ReadBack(device, depth, read)


def _largest_step(node: NodeRuntime, wired: Wired) -> int:
    """Bytes of the largest step: a padding-only plan at the eager step's bounds."""
    config, most = wired.resolved.config.engine, 0
    bits = (
        max(v for r in node.resources.values() for v in (*r.variants(), r.all_variants()))
        if node.resources
        else 0
    )
    for walk in node.walks.values():
        items = walk.max_items or config.token_budget
        if walk.is_decode:
            items = config.max_rows
        spans = node.submodule.declare_step(walk.name, np.asarray([items], np.int64)) or {}
        tokens = max([items, *(int(s[0]) for s in spans.values())])
        bucket = Bucket(
            walk=walk.name,
            rows=config.max_rows + 1,
            tokens=tokens,
            kind="mixed" if walk.combines else "prefill",
            variant=bits,
            lead=config.max_rows if walk.name in node.splits else 0,
        )
        step = padding_step(node, walk, bucket)
        plans = node.plan(step, Lease(bucket=bucket))
        arrays = node.arrays(
            step,
            (),
            plans,
            attrs.evolve(bucket, tokens=items),
        )
        if walk.name in node.resident_walks:
            rows = max(config.capture_rows)
            widest = Bucket(walk=walk.name, rows=rows, tokens=rows, kind="decode")
            arrays = {**arrays, **resident_arrays(node.tables, widest, None)}
        most = max(most, sum(a.nbytes + ALIGN_BYTES for a in arrays.values()))
    return most


def row_rings(wired: Wired, device: Device) -> dict[str, RowRing]:
    """Per node with device tables: blocks for the largest flush, every row whole."""
    config = wired.resolved.config.engine
    found: dict[str, RowRing] = {}
    for name, node in wired.nodes.items():
        if node.planner is not None:
            cells = max(config.capture_rows) * node.planner.layout.num_cells
            found[name] = RowRing(device, config.in_flight + 1, cells)
    return found


def _largest_read(node: NodeRuntime, wired: Wired) -> int:
    config, most = wired.resolved.config.engine, 0
    for walk in node.walks.values():
        size = 0
        for output in walk.outputs:
            if output.read:
                width = torch_dtype_named(output.dtype, wired.dtype).itemsize
                items = (walk.max_items or config.token_budget) if output.told else 0
                rows = max(config.max_rows + 1, items)
                size += rows * int(np.prod(output.shape, dtype=np.int64)) * width + ALIGN_BYTES
        most = max(most, size)
    return most + ALIGN_BYTES
