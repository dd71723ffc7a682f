"""What a resource can do whose requests may leave the device for a while.

::

    on the device      pages, slot, rows ──pieces──► host memory      then ``offload`` gives them up
    off the device     the handle and its columns stay
    on the device      ``reload`` takes others, ``pieces`` names them ◄── host memory

A resource that holds nothing of a request on the device (it reports nothing in ``held``) need not
be evictable: its columns belong to the handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from mstar_core.step import Shortage


@runtime_checkable
class Evictable(Protocol):
    """A resource whose part of a request can be copied out, given up, and taken again."""

    def pieces(self, handle: int) -> Sequence[Tensor]:
        """Views of all device memory that the request holds here.

        Their order, shapes and dtypes follow from the request alone, never from where it lies, so
        the pieces after a reload take what the pieces before the offload held.
        """
        ...

    def offload(self, handle: int, fence: int) -> None:
        """Give up what :meth:`pieces` names; it is free once entry ``fence`` is retired."""
        ...

    def can_reload(self, handle: int) -> Shortage | None:
        """Pure: what is missing to hold the request to its end again, its next step included."""
        ...

    def reload(self, handle: int) -> None:
        """Take the same again, elsewhere. Cannot refuse after :meth:`can_reload`."""
        ...
