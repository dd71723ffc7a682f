"""Device time of every replayed step, by the device's own clock, while somebody watches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from attrs import define, field, frozen
from torch import Tensor

from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Device, Mark
from mstar_core.engine.graphs import Graph
from mstar_core.step import Bucket

Replays = list[tuple[Mark, Mark]]


@frozen(kw_only=True, eq=False)
class TimedGraph(Graph):
    """A graph between two marks."""

    graph: Graph
    device: Device
    replays: Replays
    name: str
    outputs: Mapping[str, Tensor]
    num_bytes: int

    def replay(self) -> None:
        begin = self.device.mark()
        self.graph.replay()
        self.replays.append((begin, self.device.mark()))


@define(eq=False)
class GraphTimes:
    """What was replayed, bucket by bucket."""

    _replays: dict[Bucket, Replays] = field(factory=dict)

    def us(self) -> dict[Bucket, list[float]]:
        """Microseconds of each replay, in their order. The device must have passed them all."""
        return {
            bucket: [end.us_since(begin) for begin, end in replays]
            for bucket, replays in self._replays.items()
            if replays
        }


@contextmanager
def graph_times(core: EngineCore) -> Iterator[GraphTimes]:
    """Time the captured steps of ``core``, which must be idle at the beginning and the end."""
    found = GraphTimes()
    lifecycle = core.lifecycle
    former = {bucket: one.graph for bucket, one in lifecycle.buckets.captured.items()}
    for bucket, one in lifecycle.buckets.captured.items():
        graph, replays = one.graph, found._replays.setdefault(bucket, [])
        one.graph = TimedGraph(
            graph=graph,
            device=lifecycle.device,
            replays=replays,
            name=graph.name,
            outputs=graph.outputs,
            num_bytes=graph.num_bytes,
        )
    try:
        yield found
        lifecycle.device.synchronize()
    finally:
        for bucket, graph in former.items():
            lifecycle.buckets.captured[bucket].graph = graph
