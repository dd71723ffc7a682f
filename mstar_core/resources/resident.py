"""What a resource keeps on the device so that a decode step needs no host plan.

Device tables hold *mirrors*: values that the host knows too and can write again at any time. A
resource names its columns by the very host arrays that they mirror, so nothing is copied to say
what a row should hold, and builds its plan from the columns that were gathered for the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from mstar_core.fixed import FixedBuffers
from mstar_core.step import Plan


@frozen(kw_only=True, eq=False)
class Column:
    """One value per request (or, with ``held``, a row of them) that the device mirrors."""

    name: str
    host: np.ndarray
    """The host's truth: ``[handles]``, or ``[handles, width]`` for a span of cells."""
    held: np.ndarray | None = None
    """For a span: how many of its cells each request uses, from the left."""
    advances: bool = False
    """Grows by the row's span in each step, on the device and on the host alike."""

    @property
    def width(self) -> int:
        """Cells of a row."""
        return 1 if self.held is None else self.host.shape[1]


@frozen(kw_only=True, eq=False)
class RowConstants:
    """What is the same in every step, for as many rows as any step has."""

    each_3W: Tensor
    """int32: the order of rows, ones, zeros."""
    places_W: Tensor
    """int64: the order of rows."""

    @classmethod
    def claim(cls, buffers: FixedBuffers, owner: str, width: int) -> RowConstants:
        """Filled, in fixed buffers of ``owner``."""
        places_W = buffers.claim(owner, "places", (width,), torch.int64)
        places_W.copy_(torch.arange(width))
        each_3W = buffers.claim(owner, "constants", (3, width), torch.int32)
        each_3W.copy_(torch.stack([torch.arange(width), torch.ones(width), torch.zeros(width)]))
        return cls(each_3W=each_3W, places_W=places_W)


@frozen(kw_only=True, eq=False)
class ResidentRows:
    """The rows of a resident step, on the device."""

    real_B: Tensor
    """bool; padding rows are not real: they read row 0, which is all zero."""
    padding_B: Tensor
    """bool: the others."""
    span: int
    """Tokens that each real row adds to this resource: 1, or 0 where it only reads."""
    variant: int = 0
    """The bucket's variant."""
    order_B: Tensor
    """int32: 0, 1, 2 and so on. It and the next three are made once for all steps: not written."""
    ones_B: Tensor
    """int32."""
    zeros_B: Tensor
    """int32."""
    places_B: Tensor
    """int64: 0, 1, 2 and so on."""

    @classmethod
    def of(
        cls, real_B: Tensor, padding_B: Tensor, constants: RowConstants, variant: int
    ) -> ResidentRows:
        """Rows that add one token each."""
        order_B, ones_B, zeros_B = constants.each_3W[:, : len(real_B)]
        return cls(
            real_B=real_B,
            padding_B=padding_B,
            span=1,
            variant=variant,
            order_B=order_B,
            ones_B=ones_B,
            zeros_B=zeros_B,
            places_B=constants.places_W[: len(real_B)],
        )


@runtime_checkable
class Resident(Protocol):
    """A resource that a captured step can read off device tables."""

    resident_adds: ClassVar[tuple[int, ...]]
    """What a row of a resident walk may add to it: 1, and 0 where a walk may only read it."""

    def resident_columns(self) -> tuple[Column, ...]:
        """The columns; none for a resource that derives its plan from others."""
        ...

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> Plan:
        """The plan of a decode step, from gathered cells (int64 ``[B]`` or ``[B, width]``).

        Runs inside the capture: static shapes, no host reads.
        """
        ...
