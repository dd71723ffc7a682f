"""Prefix reuse: what other requests computed of the same tokens is taken over, not computed again.

::

    stream     t0 ......... t63 | t64 ........ t127 | t128 ....
    key        hash(root, t0-63)  hash(root, t0-127)            of everything the bytes depend on
    pages      [7]                [3]                           found by key, shared, never written
    snapshot                      (2)                           found by key, copied

A key stands for the tokens of a page *and all before it*, so two streams that share a key share
their beginning. :class:`Kept` finds places by key; an unreferenced place stays in its pool's line
of free places, so that keeping it costs nobody anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from mstar_core.resources.fence import IdPool
from mstar_core.step import ResourceStep


class Prefix:
    """The keys of one stream, one for each multiple of ``grain`` tokens."""

    def __init__(self, root: bytes, grain: int) -> None:
        self.grain = grain
        self.length = 0
        """Tokens that are known."""
        self._hash = hashlib.blake2b(root, digest_size=16)
        self._keys: list[bytes] = []
        self._rest: Sequence[np.ndarray] = ()

    def extend(self, items: Sequence[np.ndarray]) -> None:
        """Append tokens: one array ``[tokens, *shape]`` for each of the walk's inputs."""
        grain = self.grain
        if self._rest:
            items = [np.concatenate(pair) for pair in zip(self._rest, items, strict=True)]
        full = len(items[0]) // grain * grain
        for start in range(0, full, grain):
            for array in items:
                self._hash.update(np.ascontiguousarray(array[start : start + grain]).tobytes())
            self._keys.append(self._hash.copy().digest())
        self._rest = [array[full:].copy() for array in items]
        self.length = len(self._keys) * grain + len(self._rest[0])

    def key(self, length: int) -> bytes:
        """Of the first ``length`` tokens, a multiple of the grain that is known."""
        return self._keys[length // self.grain - 1]


class Kept:
    """Places of one pool whose content can be found by its key."""

    def __init__(self, pool: IdPool) -> None:
        self.pool = pool
        self.num_evicted = 0
        """Places that were taken for something else."""
        self._place: dict[bytes, int] = {}
        self._key: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._key)

    def __contains__(self, place: int) -> bool:
        return place in self._key

    def find(self, key: bytes) -> int | None:
        """The place of ``key``, free or held."""
        return self._place.get(key)

    def put(self, key: bytes, place: int) -> bool:
        """Keep a held place under ``key``. False where another place has that key already."""
        if key in self._place:
            return False
        self._place[key], self._key[place] = place, key
        return True

    def take(self, count: int) -> np.ndarray:
        """``count`` places of the pool, for something new: kept ones last, the oldest first."""
        taken = self.pool.take(count)
        if self._key:
            for place in taken.tolist():
                key = self._key.pop(place, None)
                if key is not None:
                    del self._place[key]
                    self.num_evicted += 1
        return taken

    def give_back(self, places: Iterable[int], fence: int) -> None:
        """Give places back to the pool; what has a key can be found until it is taken."""
        if not self._key:
            self.pool.give_back(places, fence)
            return
        for place in map(int, places):
            self.pool.give_back([place], fence, kept=place in self._key)


@runtime_checkable
class Shared(Protocol):
    """A resource that can begin a request with what others left of the same tokens."""

    @property
    def grain(self) -> int:
        """Tokens between two boundaries."""
        ...

    @property
    def cuts(self) -> bool:
        """Whether a step must end at each boundary for it to be served later."""
        ...

    def begin_sharing(self) -> None:
        """Every resource of the node shares: claim what that takes. Before any capture."""
        ...

    def match(self, prefix: Prefix, most: int) -> Sequence[int]:
        """Pure: the boundaries that it could serve now, at most ``most`` tokens."""
        ...

    def adopt(self, handle: int, prefix: Prefix, boundary: int) -> None:
        """At admission, behind ``open``: begin with the first ``boundary`` tokens, and pin them."""
        ...

    def publish(self, handle: int, prefix: Prefix, length: int) -> None:
        """``length`` tokens of the request are read and kept: let others find them."""
        ...

    def sharing(self) -> Mapping[str, int]:
        """What is kept, and what became of it, by name."""
        ...


@runtime_checkable
class Copies(Protocol):
    """A shared resource whose parts are copied: as pieces of entries, in stream order."""

    def before(self, step: ResourceStep, number: int) -> Callable[[], None] | None:
        """What must be copied before the forward of entry ``number``; None: nothing."""
        ...

    def behind(self, step: ResourceStep, number: int) -> Callable[[], None] | None:
        """What must be copied behind it, once it is committed; None: nothing."""
        ...


def agreed(offers: Sequence[Sequence[int]]) -> int:
    """The largest boundary that every resource offers; 0 where there is none."""
    if not offers:
        return 0
    return max(set(offers[0]).intersection(*offers[1:]), default=0)
