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
class ResidentRows:
    """The rows of a resident step, on the device."""

    real_B: Tensor
    """bool; padding rows are not real: they read row 0, which is all zero."""
    span: int
    """Tokens that each real row adds to this resource: 1, or 0 where it only reads."""
    variant: int = 0
    """The bucket's variant."""
    order_B: Tensor
    """int32: 0, 1, 2 and so on. It and the next two are made once for all steps: not written."""
    ones_B: Tensor
    """int32."""
    zeros_B: Tensor
    """int32."""

    @classmethod
    def of(cls, slots_B: Tensor, constants_3W: Tensor, variant: int) -> ResidentRows:
        """Rows that add one token each; the constants are :func:`row_constants`."""
        order_B, ones_B, zeros_B = constants_3W[:, : len(slots_B)]
        return cls(
            real_B=slots_B != 0,
            span=1,
            variant=variant,
            order_B=order_B,
            ones_B=ones_B,
            zeros_B=zeros_B,
        )


def row_constants(width: int) -> Tensor:
    """int32 ``[3, width]``: the order of rows, ones, zeros."""
    order_W = torch.arange(width, dtype=torch.int32)
    return torch.stack((order_W, torch.ones_like(order_W), torch.zeros_like(order_W)))


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
