"""Where the time of a closed loop's turns goes: the host's part by part, and the graphs'."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from attrs import frozen

from mstar_core.bench.graph_times import graph_times
from mstar_core.bench.offline import Shape, measure
from mstar_core.bench.stats import Figures
from mstar_core.clock import Laps
from mstar_core.engine import Engine


@frozen(kw_only=True)
class Phase:
    """One part of what was taken many times."""

    count: int
    median_us: float
    total_ms: float


@frozen(kw_only=True)
class Phases:
    """One round of a closed loop, timed by parts; the clocks themselves cost it a little."""

    figures: Figures
    host: Mapping[str, Phase]
    """By lap of a turn; ``wait`` is the host's, until the oldest step is read."""
    graphs: Mapping[str, Phase]
    """By bucket, of the device's own clock."""


def phases(engine: Engine, shape: Shape) -> Phases:
    """Run ``shape`` in an engine that is idle; it goes on taking laps behind it."""
    core, laps = engine.driver.core, Laps()

    def take() -> None:
        core.take_laps(laps)

    with graph_times(core) as times:
        engine.driver.call(take)
        found = measure(engine, shape)
    by_lap: dict[str, list[float]] = {}
    for turn in laps.turns:
        for name, ns in turn.items():
            by_lap.setdefault(name, []).append(ns / 1e3)
    return Phases(
        figures=found,
        host={name: _phase(us) for name, us in by_lap.items()},
        graphs={str(bucket): _phase(us) for bucket, us in times.us().items()},
    )


def _phase(us: list[float]) -> Phase:
    return Phase(count=len(us), median_us=statistics.median(us), total_ms=sum(us) / 1e3)
