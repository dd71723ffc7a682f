"""Requests that leave the device for a while: copied out whole, given up, and taken again.

::

    running ─offload─► left out of steps ─its steps are read─► [copy out] ─► away
       ▲                                                                      │
       └───────────────────────── [copy in] ◄── all of it fits ◄──── reload ──┘

Each copy is an entry of the queue. What an offload gives up is fenced by the entry that reads it;
a reload takes the request's part of every resource, with the pages that it was promised or that its
next token needs, or nothing. Who fits may come back before an older one that does not, within a
bound. A request's row of the device tables is given up at the offload and written whole afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from attrs import define, field
from torch import Tensor

from mstar_core.engine.edges import EdgeRing
from mstar_core.engine.lifecycle import Entry, Lifecycle
from mstar_core.engine.node import NodeRuntime
from mstar_core.errors import Refusal
from mstar_core.resources.evictable import Evictable
from mstar_core.sched import RequestState
from mstar_core.sched.admission import PASSES, by_rank, passed


@define(eq=False, kw_only=True)
class OffloadCounts:
    """What was moved so far."""

    offloads: int = 0
    reloads: int = 0
    rows_given_up: int = 0
    """Rows of device tables that offloads gave up."""
    num_bytes: int = 0
    """Bytes copied out."""


@define(eq=False, kw_only=True)
class Offloads:
    """Who is on the way out, away, or called back."""

    nodes: Mapping[str, NodeRuntime]
    rings: Mapping[str, EdgeRing]
    lifecycle: Lifecycle
    counts: OffloadCounts = field(factory=OffloadCounts, init=False)
    num_bytes_away: int = field(default=0, init=False)
    """Bytes that are held on the host."""
    _leaving: list[RequestState] = field(factory=list, init=False)
    _away: dict[str, tuple[RequestState, list[Tensor]]] = field(factory=dict, init=False)
    _called: list[RequestState] = field(factory=list, init=False)

    def refusal(self) -> Refusal | None:
        """Why no request of this engine can be offloaded, or None."""
        for name, node in self.nodes.items():
            for key, resource in node.resources.items():
                if resource.held() and not isinstance(resource, Evictable):
                    return Refusal(
                        code="not-evictable",
                        where=f"node {name}, resource {key}",
                        got=f"a resource of kind {resource.kind} that only the device can hold",
                        want="a resource that implements Evictable",
                        fix="keep its requests on the device to their end",
                        owner=key,
                    )
        return None

    def leave(self, state: RequestState) -> None:
        """Offload a request that no step is chosen for any more, once its steps are read."""
        self._leaving.append(state)

    def call_back(self, request_id: str) -> None:
        """Reload a request that is away, or on its way out, as soon as all of it fits."""
        out = [*self._leaving, *(state for state, _ in self._away.values())]
        self._called += [s for s in out if s.id == request_id and s not in self._called]

    def forget(self, state: RequestState) -> bool:
        """The request is over; whether it was here."""
        if state in self._called:
            self._called.remove(state)
        if state in self._leaving:
            self._leaving.remove(state)
            return True
        return self._drop(state) is not None

    @property
    def num_leaving(self) -> int:
        """Requests that are still to be copied out."""
        return len(self._leaving)

    @property
    def called(self) -> list[RequestState]:
        """Who is to come back, by rank."""
        return sorted(self._called, key=by_rank)

    def num_bytes_of(self, handle: int) -> int:
        """Bytes that would be copied of a request."""
        return _num_bytes([piece for part in self._parts() for piece in part.pieces(handle)])

    @property
    def num_resting(self) -> int:
        """Requests that wait for nothing but to be called back."""
        return len(self._away) - sum(state.id in self._away for state in self._called)

    @property
    def is_empty(self) -> bool:
        """Nobody is here."""
        return not self._leaving and not self._away

    def move(self, lets_in: bool = True) -> Iterator[tuple[Entry, RequestState | None]]:
        """Copies that can be made now; with those that come back, who does."""
        for state in [s for s in self._leaving if not any(t.unread for t in s.tracks)]:
            self._leaving.remove(state)
            yield self.lifecycle.copies(partial(self._out, state)), None
        before: list[RequestState] = []
        for state in self.called if lets_in else ():
            if state.id not in self._away or not self._fits(state.handle):
                before.append(state)
            elif all(other.passed < PASSES for other in before):
                passed(before)
                self._called.remove(state)
                yield self.lifecycle.copies(partial(self._in, state)), state

    def _out(self, state: RequestState, number: int) -> None:
        device, handle, kept = self.lifecycle.device, state.handle, []
        for part in self._parts():
            for piece in part.pieces(handle):
                kept.append(device.pinned(piece.shape, piece.dtype))
                device.copy_out(piece, kept[-1])
        self.num_bytes_away += _num_bytes(kept)
        self.counts.num_bytes += _num_bytes(kept)
        for part in self._parts():
            part.offload(handle, number)
        for node in self.nodes.values():
            if node.planner is not None:
                self.counts.rows_given_up += int(node.planner.slots.of(np.array([handle]))[0] > 0)
                node.planner.release(handle)
        self._away[state.id] = state, kept
        state.last_entry = number
        self.counts.offloads += 1

    def _in(self, state: RequestState, number: int) -> None:
        kept = self._drop(state) or []
        state.passed = 0
        for part in self._parts():
            part.reload(state.handle)
        pieces = [piece for part in self._parts() for piece in part.pieces(state.handle)]
        for piece, host in zip(pieces, kept, strict=True):
            self.lifecycle.device.copy_in(host, piece)
        state.last_entry = number
        self.counts.reloads += 1

    def _drop(self, state: RequestState) -> list[Tensor] | None:
        """Forget what is held of a request on the host."""
        _, kept = self._away.pop(state.id, (state, None))
        self.num_bytes_away -= _num_bytes(kept or [])
        return kept

    def _fits(self, handle: int) -> bool:
        return all(part.can_reload(handle) is None for part in self._parts())

    def _parts(self) -> Iterator[Evictable]:
        for node in self.nodes.values():
            for resource in node.resources.values():
                if isinstance(resource, Evictable):
                    yield resource
        yield from self.rings.values()


def _num_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
