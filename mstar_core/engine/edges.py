"""Edges between walks: a ring of items per request, on the device.

One place of the ring holds one item. A request owns ``capacity`` places from its admission to its
close; item n lies in the n-th of them, modulo the capacity. Counts are of launched items: the
consumer may be launched right behind the producer, because both are in stream order::

    places of one request (capacity 3)   [ item 3 | item 1 | item 2 ]
    produced 4, consumed 1               waiting 3, room 0: the producer is gated
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from mstar_core.dtypes import torch_dtype_named
from mstar_core.model.walks import Edge
from mstar_core.resources.base import BuildEnv
from mstar_core.resources.fence import IdPool
from mstar_core.resources.resident import Column
from mstar_core.step import Plan, Shortage, Staged, plan_class


@plan_class
class EdgePlan(Plan):
    """Where the items of a resident step land in a ring."""

    places_B: Staged
    """int64; padding lands in place 0."""


class EdgeRing:
    """The items of one edge, for every admitted request. Place 0 is where padding lands."""

    def __init__(self, edge: Edge, env: BuildEnv) -> None:
        self.edge = edge
        places = 1 + env.max_rows * edge.capacity
        dtype = torch_dtype_named(edge.dtype, env.dtype)
        self._items = env.buffers.claim("edges", edge.name, (places, *edge.shape), dtype)
        self._pool = IdPool(env.max_rows + 1, env.fences)
        self._slot = env.table.column(np.int64, -1)
        self._produced = env.table.column(np.int64)
        self._consumed = env.table.column(np.int64)

    def can_open(self) -> Shortage | None:
        """Whether one more request can be admitted."""
        if self._pool.num_free:
            return None
        return Shortage(
            key=self.key,
            need=1,
            free=0,
            cooling=self._pool.num_cooling,
            unit="rings",
        )

    def open(self, handle: int) -> None:
        """Take the request's places."""
        self._slot[handle] = self._pool.take(1)[0]

    def close(self, handle: int, fence: int) -> None:
        """Give the places back behind ``fence``; idempotent."""
        if self._slot[handle] >= 0:
            self._pool.give_back([self._slot[handle]], fence)
            self._slot[handle] = -1

    def pieces(self, handle: int) -> Sequence[Tensor]:
        """The request's places, ``[capacity, *shape]``."""
        capacity = self.edge.capacity
        first = 1 + (int(self._slot[handle]) - 1) * capacity
        return [self._items[first : first + capacity]]

    def offload(self, handle: int, fence: int) -> None:
        """Give the places up; what waits in them is counted still."""
        self.close(handle, fence)

    def can_reload(self, handle: int) -> Shortage | None:
        """Whether places are free."""
        return self.can_open()

    def reload(self, handle: int) -> None:
        """Take places again."""
        self.open(handle)

    def waiting(self, handle: int) -> int:
        """Items produced and not consumed."""
        return int(self._produced[handle] - self._consumed[handle])

    def room(self, handle: int) -> int:
        """Items that may still be produced."""
        return self.edge.capacity - self.waiting(handle)

    def places_out(self, handles_B: np.ndarray, spans_B: np.ndarray, num_items: int) -> np.ndarray:
        """Where each produced item lands, int64 ``[num_items]``; padding lands in place 0."""
        return self._places(self._produced, handles_B, spans_B, num_items)

    def places_in(self, handles_B: np.ndarray, spans_B: np.ndarray, num_items: int) -> np.ndarray:
        """Where each consumed item lies, int64 ``[num_items]``."""
        return self._places(self._consumed, handles_B, spans_B, num_items)

    @property
    def key(self) -> str:
        """Its name among the columns of a node's device tables."""
        return f"edge {self.edge.name}"

    def columns(self) -> tuple[Column, ...]:
        """What the device must know of a request, for resident steps to fill its places."""
        produced = Column(name="produced", host=self._produced, advances=True)
        return (Column(name="ring", host=self._slot), produced)

    def resident_plan(self, cells: Mapping[str, Tensor], real_B: Tensor) -> EdgePlan:
        """In a capture: where the item of each row lands, from its columns."""
        first_B = 1 + (cells["ring"] - 1) * self.edge.capacity
        places_B = first_B + cells["produced"] % self.edge.capacity
        return EdgePlan(places_B=torch.where(real_B, places_B, 0))

    def commit(self, handles_B: np.ndarray, made_B: np.ndarray, used_B: np.ndarray) -> None:
        """A step that makes and uses these many items has been launched."""
        self._produced[handles_B] += made_B
        self._consumed[handles_B] += used_B

    def write(self, items: Tensor, places_T: Tensor) -> None:
        """In a forward: put items ``[T, *shape]`` into their places."""
        self._items.index_copy_(0, places_T, items.to(self._items.dtype))

    def read(self, places_T: Tensor) -> Tensor:
        """In a forward: the items of these places, ``[T, *shape]``."""
        return self._items.index_select(0, places_T)

    def held(self) -> tuple[int, int]:
        """(free or cooling, total) rings."""
        return self._pool.num_free + self._pool.num_cooling, self._pool.num_ids

    def _places(
        self, counts: np.ndarray, handles_B: np.ndarray, spans_B: np.ndarray, num_items: int
    ) -> np.ndarray:
        places = np.zeros(num_items, np.int64)
        rows = np.repeat(np.arange(len(spans_B)), spans_B)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(spans_B) - spans_B, spans_B)
        handles = handles_B[rows]
        cycle = (counts[handles] + nth) % self.edge.capacity
        places[: len(rows)] = 1 + (self._slot[handles] - 1) * self.edge.capacity + cycle
        return places
