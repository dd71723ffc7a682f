"""Resident buckets: how they are captured, what a step of one sends, and what is checked.

A resident bucket's block holds the row numbers of its step and the cells that its graph scatters;
nothing else travels. A step that differs from what the bucket last received in neither sends
nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from attrs import define, field
from torch import Tensor

from mstar_core.engine.device import Device
from mstar_core.engine.node import RESIDENT, NodeRuntime
from mstar_core.engine.staging import Key
from mstar_core.errors import Refusal
from mstar_core.fixed import FixedBuffers
from mstar_core.model.walks import Walk
from mstar_core.resident import ResidentPlanner, ResidentWrites
from mstar_core.resident.writes import Run
from mstar_core.resources.resident import Resident
from mstar_core.resources.table import RequestTable
from mstar_core.step import Bucket


def walk_refusal(node: NodeRuntime, walk: Walk) -> Refusal | None:
    """Why a walk that nobody vetoes still cannot be resident: it is no plain decode."""
    fed = None if walk.feed == "loop" else f"rows that are fed from the {walk.feed}"
    got = fed or _odd_part(node, walk)
    if got is None:
        return None
    return Refusal(
        code="not-a-plain-decode",
        where=f"node {node.name}, walk {walk.name}",
        got=got,
        want="one looped item a row, which adds one token to each resource, or only reads a pool",
        fix="nothing to do: the walk is planned on the host",
        owner=node.name,
    )


def _odd_part(node: NodeRuntime, walk: Walk) -> str | None:
    """What is odd in what a row of the walk does to some resource."""
    for key, span in node.resident_spans(walk.name).items():
        resource = node.resources[key]
        if not isinstance(resource, Resident):
            return f"{key}, a resource without columns"
        if span not in resource.resident_adds:
            return f"rows that add {span} tokens to {key}"
    return None


def give_tables(
    node: NodeRuntime,
    walks: Sequence[str],
    width: int,
    table: RequestTable,
    buffers: FixedBuffers,
) -> None:
    """Build the node's planner for these resident walks; before any capture."""
    keys = [key for key in node.resources if any(key in node.resident_spans(w) for w in walks)]
    columns = {}
    for key in keys:
        resource = node.resources[key]
        if isinstance(resource, Resident):
            columns[key] = resource.resident_columns()
    columns |= {ring.key: ring.columns() for w in walks for ring in node.filled(w).values()}
    node.planner = ResidentPlanner(node.name, columns, width, table, buffers)
    node.resident_walks = frozenset(walks)
    for walk in walks:  # claimed before a capture reads it
        node.planner.advance_tensor(node.advance(walk))


def resident_arrays(
    planner: ResidentPlanner, bucket: Bucket, writes: ResidentWrites | None
) -> dict[Key, np.ndarray]:
    """The block of a resident bucket: padded row numbers, and the cells to scatter."""
    slots_B = np.zeros(bucket.rows, np.int64)
    cells_2K = np.zeros((2, bucket.rows * planner.cells_per_row()), np.int64)
    count = 0
    if writes is not None:
        count = len(writes.index_K)
        slots_B[: len(writes.slots_B)] = writes.slots_B
        cells_2K[0, :count], cells_2K[1, :count] = writes.index_K, writes.value_K
    return {
        (RESIDENT, "slots_B"): slots_B,
        (RESIDENT, "count_1"): np.asarray([count], np.int64),
        (RESIDENT, "index_K"): cells_2K[0],
        (RESIDENT, "value_K"): cells_2K[1],
    }


@define(eq=False)
class RowRing:
    """Page-locked blocks that whole rows are copied from, one per entry in flight."""

    device: Device
    depth: int
    num_cells: int
    """Cells of the largest flush: every row of the widest bucket, whole."""
    _ring: list[Tensor] = field(factory=list, init=False)
    _next: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._ring = [self.device.pinned((self.num_cells,), torch.int64) for _ in range(self.depth)]

    def send(self, runs: Sequence[Run], store_RC: Tensor) -> None:
        """Copy each run to its flat place in the store, in order."""
        block = self._ring[self._next]
        self._next = (self._next + 1) % self.depth
        host, flat, at = block.numpy(), store_RC.view(-1), 0
        for start, values in runs:
            host[at : at + len(values)] = values
            self.device.copy_in(block[at : at + len(values)], flat[start : start + len(values)])
            at += len(values)
