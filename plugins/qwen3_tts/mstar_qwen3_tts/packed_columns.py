"""Columns of several recordings in one sequence, for operations that see a whole recording.

Rows follow each other; column ``at`` of a row is known by its index, which begins at 0 in each row.
Nothing is read back: all shapes follow from the number of rows and columns.
"""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor


@frozen(kw_only=True, eq=False)
class PackedColumns:
    """Whose each column is."""

    at_L: Tensor
    """int64: the column's index within its row."""
    row_L: Tensor
    """int64: its row."""
    own_BL: Tensor
    """float32, one where the column is the row's."""
    first_L: Tensor
    """int64: where its row begins."""
    last_L: Tensor
    """int64: the last index within its row."""

    @classmethod
    def of(cls, at_L: Tensor, rows: int) -> PackedColumns:
        """From the columns' indices, which are 0 where one of ``rows`` rows begins."""
        row_L = (at_L == 0).cumsum(0) - 1
        own_BL = torch.arange(rows, device=at_L.device)[:, None] == row_L
        last_B = own_BL.sum(1) - 1
        places_L = torch.arange(len(at_L), device=at_L.device)
        return cls(
            at_L=at_L,
            row_L=row_L,
            own_BL=own_BL.float(),
            first_L=places_L - at_L,
            last_L=last_B[row_L],
        )

    def reflected(self, offset: int) -> Tensor:
        """The column this far from each, turned back at the ends of its row."""
        at_L = (self.at_L + offset).abs()
        return self.first_L + torch.minimum(at_L, 2 * self.last_L - at_L).clamp(min=0)

    def mean(self, x_CL: Tensor) -> Tensor:
        """The mean of each row, ``[C, B]``."""
        return x_CL @ self.own_BL.T / self.own_BL.sum(1)

    def total(self, x_CL: Tensor) -> Tensor:
        """The sum of each row, ``[C, B]``."""
        return x_CL @ self.own_BL.T

    def spread(self, x_CB: Tensor) -> Tensor:
        """What is of a row, at each of its columns: ``[C, L]``."""
        return x_CB[:, self.row_L]

    def softmax(self, x_CL: Tensor) -> Tensor:
        """Over the columns of each row."""
        row_CL = self.row_L.expand(len(x_CL), -1)
        most_CB = x_CL.new_full((len(x_CL), len(self.own_BL)), float("-inf"))
        most_CB = most_CB.scatter_reduce(1, row_CL, x_CL, "amax")
        raised_CL = (x_CL - self.spread(most_CB)).exp()
        return raised_CL / self.spread(self.total(raised_CL))
