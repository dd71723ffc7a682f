"""Graphs: a forward recorded once over fixed memory, and replayed without running its Python.

A backend of this seam captures whole forwards and inner regions alike. A *region* (a short loop
inside a forward) is captured with its own ``fn``, which reads the region's fixed scratch and input
tensors; an eager forward copies its values into those inputs and replays the region's graph. While
a whole forward is captured, the region's ``fn`` is called instead of its graph, so that it is
recorded inline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from attrs import define
from torch import Tensor

from mstar_core.errors import MstarError, Refusal

Forward = Callable[[], Mapping[str, Tensor]]
"""What is captured: reads and writes fixed memory, returns named outputs made inside."""


@define(kw_only=True, eq=False)
class CaptureRefused(MstarError):
    """A forward that cannot be captured: the bucket is dropped, and its steps run eagerly."""

    code: str
    """A stable word: ``host-read``, ``stale-input``, ``random``, ``resize``, ``output`` …"""

    @property
    def refusal(self) -> Refusal:
        """The same as an answer, for the warmup report."""
        return Refusal(code=self.code, owner="capture", **self.facts())


class Graph(ABC):
    """One captured forward."""

    name: str
    outputs: Mapping[str, Tensor]
    """Static tensors: they hold the values of the last replay, until the next one."""
    num_bytes: int
    """Device memory of everything made inside."""

    @abstractmethod
    def replay(self) -> None:
        """Run what was recorded, on what the fixed memory holds now: call it in ``Device.run``.

        Raises DeviceFault where an operation fails, and SealedError where fixed memory has moved.
        """


class GraphBackend(ABC):
    """How forwards are captured on one device."""

    name: ClassVar[str]
    """What ``engine.graphs`` calls it."""

    @abstractmethod
    def capture(self, name: str, fn: Forward, inputs: Sequence[Tensor]) -> Graph:
        """Call ``fn`` once to warm up and once to record it, with padding in ``inputs``.

        ``inputs`` are the tensors of the bucket's static block. Besides them ``fn`` may touch
        fixed buffers, parameters and what it makes itself. Raises CaptureRefused otherwise.
        """
