"""The warmup report: what was built, chosen, captured and refused, and what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from attrs import define, field, frozen

from mstar_core.engine.backends import Choice
from mstar_core.errors import Refusal


@frozen(kw_only=True)
class BucketReport:
    """One bucket: captured, or dropped with every reason."""

    bucket: str
    captured: bool
    refusals: tuple[Refusal, ...] = ()


@frozen(kw_only=True)
class NodeReport:
    """One node: its resources, who computes what, its buckets, and whether it is resident."""

    name: str
    resources: Mapping[str, str]
    """Key → kind."""
    choices: tuple[Choice, ...]
    buckets: list[BucketReport]
    resident_walks: tuple[str, ...] = ()
    resident_rows: int = 0
    """Rows of the store that requests can sit in."""
    resident_cells: int = 0
    """Cells of a row, 8 bytes each."""
    resident_refusals: tuple[Refusal, ...] = ()


@define(kw_only=True)
class WarmupReport:
    """The record of one start."""

    model: str
    checkpoint: str
    device: str
    dtype: str
    graphs: str
    max_context: int
    nodes: list[NodeReport] = field(factory=list)
    memory: dict[str, int] = field(factory=dict)
    """Owner → bytes."""
    counts_graphs: bool = True
    """Whether ``memory`` has what graphs keep inside: a dry run captures, and so knows, none."""
    seconds: dict[str, float] = field(factory=dict)
    """Phase → seconds."""
    prefix_interval: int | None = None
    """Tokens between boundaries at which a prompt's beginning is taken over; None: never."""
    prefix_refusals: tuple[Refusal, ...] = ()
    """Why not."""
    set_aside: tuple[str, ...] = ()
    """Tensors of the checkpoint that the model does not use."""
    findings: list[Refusal] = field(factory=list)
    """What was noticed and did not stop the start."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        return {**attrs.asdict(self), "schema": 1}

    def lines(self) -> Iterator[str]:
        """The table a person reads."""
        yield f"model     {self.model}  ({self.checkpoint})"
        yield (
            f"device    {self.device}, {self.dtype}, graphs {self.graphs}, "
            f"context {self.max_context} tokens"
        )
        for node in self.nodes:
            yield from _node_lines(node)
        yield from self._prefix_lines()
        total = sum(self.memory.values())
        more = "" if self.counts_graphs else ", and what graphs keep inside (a start tells)"
        yield f"memory    {mib(total)}{more}"
        for owner, size in sorted(self.memory.items(), key=lambda pair: -pair[1]):
            if size:
                yield f"  {mib(size):>12}  {owner}"
        if self.set_aside:
            yield f"set aside {len(self.set_aside)} tensors of the checkpoint"
        yield "seconds   " + ", ".join(f"{k} {v:.2f}" for k, v in self.seconds.items())
        for finding in self.findings:
            yield f"finding   {finding}"

    def _prefix_lines(self) -> Iterator[str]:
        if self.prefix_interval is not None:
            yield f"prefixes  reused every {self.prefix_interval} tokens"
        for refusal in self.prefix_refusals:
            yield f"prefixes  not reused: {refusal}"


def _node_lines(node: NodeReport) -> Iterator[str]:
    kinds = ", ".join(f"{k}" if k == v else f"{k} ({v})" for k, v in node.resources.items())
    yield f"node      {node.name}: {kinds}"
    for choice in node.choices:
        passed = (
            f"; passed over: {', '.join(map(str, choice.passed_over))}"
            if choice.passed_over
            else ""
        )
        behind = f"; behind it {', '.join(choice.behind)}" if choice.behind else ""
        why = f", {choice.rank}" if choice.behind else ""
        chosen = f"{choice.name} ({choice.asked_for}){why}"
        yield f"  backend   {choice.operation}: {chosen}{behind}{passed}"
    captured = [b.bucket for b in node.buckets if b.captured]
    dropped = [b for b in node.buckets if not b.captured]
    if node.buckets:
        yield f"  buckets   {len(captured)} captured, {len(dropped)} dropped"
    for one in dropped:
        yield f"    dropped {one.bucket}: {'; '.join(map(str, one.refusals))}"
    if node.resident_walks:
        rows, cells = node.resident_rows, node.resident_cells
        yield (
            f"  resident  {', '.join(node.resident_walks)}: {rows} rows of {cells} cells, "
            f"{mib(8 * rows * cells)}"
        )
    if node.resident_refusals:
        who = "the others are" if node.resident_walks else "none:"
        yield f"  resident  {who} planned on the host, {_because(node.resident_refusals)}"


def _because(refusals: Sequence[Refusal]) -> str:
    """One reason in its own words; of several, who has them."""
    if len({refusal.got for refusal in refusals}) == 1:
        return f"because of {refusals[0].owner} ({refusals[0].got})"
    owners = ", ".join(sorted({refusal.owner for refusal in refusals}))
    return f"because of {owners} (reasons: --json)"


def mib(size: int) -> str:
    """Bytes in MiB, one decimal."""
    return f"{size / 2**20:.1f} MiB"
