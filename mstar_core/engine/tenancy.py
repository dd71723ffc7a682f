"""What admitted requests hold: one handle, and their part of every resource and edge."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from attrs import define, field

from mstar_core.engine.edges import EdgeRing
from mstar_core.engine.node import NodeRuntime
from mstar_core.resources.base import Opening
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable
from mstar_core.step import Shortage

Openings = Mapping[str, Opening]
"""Per node: a request in the numbers that its resources need."""


@define(eq=False, kw_only=True)
class Tenancy:
    """Takes for a request as a whole at admission, and gives everything back behind a fence."""

    nodes: Mapping[str, NodeRuntime]
    rings: Mapping[str, EdgeRing]
    table: RequestTable
    fences: Fences
    _cooling: list[tuple[int, int]] = field(factory=list, init=False)
    """(fence, handle) of requests that are over, until no record names the handle."""

    def check(self, openings: Openings) -> None:
        """At the door, pure. Raises RequestError for what could never be held."""
        for name, node in self.nodes.items():
            for resource in node.resources.values():
                resource.check(openings[name])

    def short(self, openings: Openings) -> Shortage | None:
        """Before admission, pure: the first thing that is missing."""
        if not self.table.num_free:
            return Shortage(key="requests", need=1, free=0, unit="handles")
        for name, node in self.nodes.items():
            for resource in node.resources.values():
                short = resource.can_open(openings[name])
                if short is not None:
                    return short
        for ring in self.rings.values():
            short = ring.can_open()
            if short is not None:
                return short
        return None

    def open(self, openings: Openings) -> int:
        """At admission: take, and give the handle. ``short`` has found nothing missing."""
        handle = self.table.open()
        try:
            for name, node in self.nodes.items():
                for resource in node.resources.values():
                    resource.open(handle, openings[name])
            for ring in self.rings.values():
                ring.open(handle)
        except Exception:
            self.close(handle, -1)
            raise
        return handle

    def close(self, handle: int, fence: int) -> None:
        """The request is over: all of it is free once entry ``fence`` is retired."""
        for node in self.nodes.values():
            node.close(handle, fence)
        for ring in self.rings.values():
            ring.close(handle, fence)
        self.table.close(handle)
        heapq.heappush(self._cooling, (fence, handle))
        self.recycle()

    def recycle(self) -> bool:
        """Give out again the handles that no record names; whether any was or is cooling."""
        cooling = bool(self._cooling)
        while self._cooling and self._cooling[0][0] <= self.fences.retired:
            self.table.recycle(heapq.heappop(self._cooling)[1])
        return cooling

    def held(self) -> dict[str, tuple[int, int]]:
        """``node.key unit`` → (free or cooling, total)."""
        found: dict[str, tuple[int, int]] = {}
        for name, node in self.nodes.items():
            for key, resource in node.resources.items():
                for unit, pair in resource.held().items():
                    found[f"{name}.{key} {unit}"] = pair
        for name, ring in self.rings.items():
            found[f"edge {name}"] = ring.held()
        return found

    def check_conserved(self) -> None:
        """With no request live, everything must be free or cooling. Raises RuntimeError if not."""
        lost = {what: pair for what, pair in self.held().items() if pair[0] != pair[1]}
        if lost:
            raise RuntimeError(f"not given back (free, total): {lost}")
