"""What a step cannot spare for one of its rows, beside the weights that all rows share."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class RowCost:
    """Bytes that must travel between the device and its memory, and operations."""

    num_bytes: int = 0
    num_flops: int = 0
    """A multiplication and an addition are two."""

    def __add__(self, other: RowCost) -> RowCost:
        return RowCost(
            num_bytes=self.num_bytes + other.num_bytes, num_flops=self.num_flops + other.num_flops
        )

    def __mul__(self, rows: int) -> RowCost:
        return RowCost(num_bytes=self.num_bytes * rows, num_flops=self.num_flops * rows)
