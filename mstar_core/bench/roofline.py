"""The floor of a step: what its weights and its rows' memory cost at the machine's own rates.

Bytes and operations are those of the configured model: its forward is watched on the meta device
for the weights that it reads, and its resources say what a row cannot spare. Activations, which
caches hold, and logits, of which a greedy choice keeps one number, are not counted; nor are the
scores of attention without a pool. So no implementation of the model is faster, but for one that
keeps other data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Literal

import attrs
import numpy as np
import torch
from attrs import frozen

from mstar_core.bench.ops import Limits
from mstar_core.bench.weight_reads import WeightReads
from mstar_core.config.resolve import Resolved
from mstar_core.dtypes import torch_dtype_named
from mstar_core.engine.capture import claim_block
from mstar_core.engine.device_memory import pick_device
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.opening import load_wiring
from mstar_core.engine.wire import open_model, wire
from mstar_core.fixed import FixedBuffers
from mstar_core.model.walks import Walk
from mstar_core.resources.cost import RowCost
from mstar_core.step import Bucket

NAMES: dict[torch.dtype, Literal["fp32", "bf16", "fp16"]] = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}
"""As ``model.dtype`` has them."""


@frozen(kw_only=True)
class StepCost:
    """What a step of ``rows`` rows must move and compute."""

    node: str
    walk: str
    rows: int
    span: int
    """Items of each row."""
    weight_bytes: int
    weight_flops: int
    row: RowCost
    """Of one row, beside the weights."""

    @property
    def num_bytes(self) -> int:
        """Of the whole step."""
        return self.weight_bytes + self.rows * self.row.num_bytes

    @property
    def num_flops(self) -> int:
        """Of the whole step."""
        return self.weight_flops + self.rows * self.row.num_flops

    def floor_us(self, here: Limits) -> float:
        """Microseconds: the larger of what the bytes take and what the operations take."""
        return max(self.num_bytes / here.bytes_per_us, self.num_flops / here.flops_per_us)

    def bound(self, here: Limits) -> str:
        """Which of the two it is."""
        moving = self.num_bytes / here.bytes_per_us
        return "bytes" if moving >= self.num_flops / here.flops_per_us else "products"


def dtype_of(resolved: Resolved, *, offline: bool = False) -> torch.dtype:
    """What the model would compute in on the configured device. Raises what ``check`` raises."""
    own = torch.float32
    if resolved.config.model.dtype == "auto" and pick_device(resolved.config.device) != "cpu":
        model, _ = open_model(resolved, load_wiring(resolved), offline)
        own = model.default_dtype()
    return torch_dtype_named(resolved.config.model.dtype, own)


def decode_costs(
    resolved: Resolved, rows: Sequence[int], context: int, *, offline: bool = False
) -> list[StepCost]:
    """A decode step of every number of ``rows``, each row behind ``context`` tokens.

    Raises what ``check`` raises.
    """
    nodes = _nodes(resolved, max(rows), context + 1, offline)
    return [
        step_cost(node, walk, count, 1, context)
        for node, walk in _walks(nodes)
        if walk.is_decode
        for count in rows
    ]


def prompt_costs(
    resolved: Resolved, prompts: Sequence[int], tokens: int, *, offline: bool = False
) -> list[StepCost]:
    """A step of every number of ``prompts``, each of ``tokens`` items and with nothing before it.

    A walk that takes fewer items at most is given as many.
    """
    nodes = _nodes(resolved, max(prompts), tokens + 1, offline)
    return [
        step_cost(node, walk, count, min(tokens, walk.max_items or tokens), 0)
        for node, walk in _walks(nodes)
        if walk.feed == "prompt"
        for count in prompts
    ]


def step_cost(node: NodeRuntime, walk: Walk, rows: int, span: int, before: int) -> StepCost:
    """What one step of a node on the meta device costs."""
    kind = "decode" if walk.is_decode else "prefill"
    bucket = Bucket(walk=walk.name, rows=rows, tokens=rows * span, kind=kind)
    block, plans = claim_block(node, bucket, FixedBuffers(torch.device("meta")))
    module = node.submodule
    reads = WeightReads(chain(module.parameters(), module.buffers()))
    with torch.no_grad(), reads:
        node.run(walk, plans, block.views)
    costs = _row_costs(node, walk, span, before)
    return StepCost(
        node=node.name,
        walk=walk.name,
        rows=rows,
        span=span,
        weight_bytes=reads.num_bytes,
        weight_flops=reads.num_flops,
        row=sum(costs.values(), RowCost()),
    )


def _row_costs(node: NodeRuntime, walk: Walk, span: int, before: int) -> Mapping[str, RowCost]:
    """By resource, for one row."""
    one = np.asarray([span], np.int64)
    declared = node.submodule.declare_step(walk.name, one)
    spans = {k: int(s[0]) for k, s in (declared or dict.fromkeys(node.resources, one)).items()}
    return {key: node.resources[key].row_cost(spans, before) for key in spans}


def _walks(nodes: Mapping[str, NodeRuntime]) -> list[tuple[NodeRuntime, Walk]]:
    return [(node, walk) for node in nodes.values() for walk in node.walks.values()]


def _nodes(resolved: Resolved, rows: int, context: int, offline: bool) -> Mapping[str, NodeRuntime]:
    """The nodes on the meta device, with the backends that a CPU has: those are watched.

    There is room for such steps, and no more.
    """
    config = resolved.config
    engine = attrs.evolve(
        config.engine,
        max_rows=rows,
        max_context=context,
        token_budget=max(config.engine.min_chunk, rows * context),
        capture=attrs.evolve(config.engine.capture, rows=(), tokens=()),
    )
    model = attrs.evolve(config.model, dtype=NAMES[dtype_of(resolved, offline=offline)])
    roomy = attrs.evolve(
        resolved,
        config=attrs.evolve(config, engine=engine, model=model),
        values=dict(resolved.values),
        origin=dict(resolved.origin),
    )
    device = torch.device("meta")
    return wire(roomy, load_wiring(roomy), device, target="cpu", offline=offline).nodes
