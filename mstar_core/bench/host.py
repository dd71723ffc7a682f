"""Host time of a decode step: everything but the kernels, whose launch is a counter.

The engine is the real one, over a real configuration; only its graphs do nothing when they are
replayed. Prompts of random lengths are run for real, so rows cross pages at different steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from attrs import define, field, frozen
from torch import Tensor

from mstar_core.bench.resting import resting
from mstar_core.clock import Laps
from mstar_core.config.resolve import Resolved
from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import CpuDevice
from mstar_core.engine.graphs import Forward, Graph, GraphBackend
from mstar_core.engine.opening import load_wiring
from mstar_core.engine.warmup import warm_up
from mstar_core.engine.wire import wire
from mstar_core.errors import RequestError, Words

WARM = 16
"""Turns that are run before those that count: ahead of the collection of garbage and behind it."""
DELIVERY = ("wait", "deliver")
"""Laps of a turn that read a step; the others plan and launch one."""


@frozen(kw_only=True, eq=False)
class CountedGraph(Graph):
    """A graph whose replay is counted and does nothing."""

    name: str
    outputs: Mapping[str, Tensor]
    num_bytes: int
    backend: CountedGraphs

    def replay(self) -> None:
        self.backend.replays += 1


@define(eq=False)
class CountedGraphs(GraphBackend):
    """Captures by running a forward once; its outputs stay as they are."""

    name = "counted"
    replays: int = field(default=0, init=False)

    def capture(self, name: str, fn: Forward, inputs: Sequence[Tensor]) -> Graph:
        outputs = dict(fn())
        return CountedGraph(name=name, outputs=outputs, num_bytes=0, backend=self)


@frozen(kw_only=True)
class HostTimes:
    """Microseconds of one run of decode steps."""

    rows: int
    resident: str
    steps: int
    plan_and_launch_us: float
    """Median over steps."""
    plan_and_launch_p99_us: float
    deliver_us: float
    phases_us: Mapping[str, float]
    """Median of each part."""
    share: Mapping[str, float]
    """Of the steps: untouched, crossing, whole_row; and displaced rows per step."""


def measure(resolved: Resolved, rows: int, steps: int, prompt: tuple[int, int]) -> HostTimes:
    """Decode ``rows`` requests for ``steps`` steps; prompts of (shortest, longest) tokens.

    Raises RequestError for a model whose prompts are no ids, and where they do not all decode
    together that long: for lack of memory, or because a request comes to the end of its context.
    """
    wired = wire(resolved, load_wiring(resolved), torch.device("cpu"), target="cpu")
    core, _ = warm_up(wired, CpuDevice(), CountedGraphs(), lambda phase, done, total: None)
    random, front = np.random.default_rng(0), wired.model.front()
    for _ in range(rows):
        ids = random.integers(1, 200, int(random.integers(*prompt, endpoint=True))).tolist()
        most = core.limits.context - len(ids)
        core.submit(front.ids_request(ids, max_new_tokens=most, ignore_stop_ids=True))
    alike = 0  # turns in a row that launched all requests as one step: every prompt is through
    while alike < WARM:
        before = core.lifecycle.counts.rows
        if not core.turn():
            raise _parted(core, rows, steps)
        alike = alike + 1 if core.lifecycle.counts.rows - before == rows else 0
    return _timed(core, resolved, rows, steps)


def _parted(core: EngineCore, rows: int, steps: int) -> RequestError:
    return RequestError(
        where="--steps",
        got=Words(f"{steps} steps of {rows} requests, which do not all decode so long together"),
        want=f"room for them in memory, and in the context of {core.limits.context} tokens",
        fix="lower --steps or --rows, or raise engine.max_context or engine.kv_memory",
    )


def _timed(core: EngineCore, resolved: Resolved, rows: int, steps: int) -> HostTimes:
    tables = [node.planner.counts for node in core.nodes.values() if node.planner is not None]
    before = [
        (t.steps, t.untouched_steps, t.crossing_steps, t.whole_row_steps, t.displaced)
        for t in tables
    ]
    core.events.clear()
    laps, launched = core.take_laps(Laps()), core.lifecycle.counts.rows
    with resting():
        for _ in range(WARM + steps):
            core.turn()
            core.events.clear()
    if core.lifecycle.counts.rows - launched != rows * (WARM + steps):
        raise _parted(core, rows, steps)
    core.abort_all()
    while core.turn():
        pass
    after = [
        (t.steps, t.untouched_steps, t.crossing_steps, t.whole_row_steps, t.displaced)
        for t in tables
    ]
    moved = np.subtract(after, before).sum(0) if tables else np.zeros(5, int)
    turns = laps.turns[WARM:]
    launch = sorted(sum(v for k, v in t.items() if k not in DELIVERY) / 1e3 for t in turns)
    names = list(dict.fromkeys(name for t in turns for name in t))
    share: dict[str, Any] = dict(
        zip(
            ("untouched", "crossing", "whole_row", "displaced"),
            (float(n) / max(int(moved[0]), 1) for n in moved[1:]),
            strict=True,
        )
    )
    return HostTimes(
        rows=rows,
        resident=resolved.config.engine.resident,
        steps=steps,
        plan_and_launch_us=statistics.median(launch),
        plan_and_launch_p99_us=launch[min(len(launch) - 1, len(launch) * 99 // 100)],
        deliver_us=statistics.median(sum(t.get(k, 0) for k in DELIVERY) / 1e3 for t in turns),
        phases_us={n: statistics.median(t.get(n, 0) / 1e3 for t in turns) for n in names},
        share=share,
    )
