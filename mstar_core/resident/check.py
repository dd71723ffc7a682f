"""The row check: what the device's tables held behind a resident step, against the host's truth.

Nothing waits for it. The captured step also reports its rows of the store behind the advance, row
0, and every tensor of the plans that it made in the graph; what they should be is written down
when the step is launched, and both are compared when it is retired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import attrs
import numpy as np
import torch
from attrs import define, frozen
from torch import Tensor

from mstar_core.resident.layout import RowLayout
from mstar_core.step import Plan, staged_arrays

PREFIX = "check "
"""Before the names of what the check reads, to tell them from a model's own outputs."""
ROWS = PREFIX + "rows"
PADDING = PREFIX + "row 0"
_PACKED = torch.contiguous_format  # a column of one row has its table's stride otherwise
Found = Mapping[str, np.ndarray]


def probes(store_RC: Tensor, slots_B: Tensor, plans: Mapping[str, Plan]) -> dict[str, Tensor]:
    """In a capture, behind the advance: the step's rows, row 0, and every plan tensor."""
    found = {ROWS: store_RC.index_select(0, slots_B), PADDING: store_RC[0]}
    for key, plan in plans.items():
        for f in attrs.fields(type(plan)):
            value = getattr(plan, f.name)
            if isinstance(value, Tensor):
                found[f"{PREFIX}{key}.{f.name}"] = value.clone(memory_format=_PACKED)
    return found


@frozen(kw_only=True, eq=False)
class Difference:
    """A column or a plan's field that is not what the host expects, in at least one row."""

    where: str
    """``KEY.COLUMN`` or ``plan KEY.FIELD``, with the cell where a row has several."""
    row: int
    """The first row that differs; -1 is row 0 of the store, which padding reads."""
    got: object
    want: object
    count: int
    """Cells that differ."""


@frozen(kw_only=True, eq=False)
class Expected:
    """What the host expects of one step: its rows behind the advance, and its plans."""

    layout: RowLayout
    narrow_BN: np.ndarray
    spans: tuple[np.ndarray, ...]
    """Per span of cells, int64 ``[B, width]``."""
    held_BS: np.ndarray
    """Cells in use per span; what lies behind them may be anything."""
    plans: Mapping[str, np.ndarray]
    """``check KEY.FIELD`` → the host's array, padded or not."""

    @classmethod
    def of(
        cls,
        layout: RowLayout,
        handles_B: np.ndarray,
        advance_N: np.ndarray,
        plans: Mapping[str, Plan],
    ) -> Self:
        """Copies of the host's truth, before the step is committed; ``plans`` are the host's."""
        return cls(
            layout=layout,
            narrow_BN=layout.truth(handles_B) + advance_N,
            spans=tuple(c.host[handles_B].astype(np.int64) for _, c in layout.spans),
            held_BS=layout.held(handles_B),
            plans={
                f"{PREFIX}{key}.{name}": array.copy()
                for key, plan in plans.items()
                for name, array in staged_arrays(plan).items()
                if name not in plan.resident_lacks()
            },
        )

    @property
    def num_rows(self) -> int:
        """Rows of the step, padding not counted."""
        return len(self.narrow_BN)

    def differences(self, found: Found) -> Iterator[Difference]:
        """Everything that the device has otherwise; padding rows and unused cells may differ."""
        rows_BC = found[ROWS][: self.num_rows]
        for i, ((key, name), _) in enumerate(self.layout.narrow):
            yield from _compare(f"{key}.{name}", rows_BC[:, i], self.narrow_BN[:, i])
        for s, ((key, name), column) in enumerate(self.layout.spans):
            start = self.layout.start[key, name]
            cells_BW = rows_BC[:, start : start + column.width]
            used_BW = np.arange(column.width) < self.held_BS[:, s, None]
            yield from _compare(f"{key}.{name}", cells_BW, self.spans[s], used_BW)
        reported = {name for name in found if name.startswith(PREFIX)}
        for name in sorted({*self.plans, *reported} - {ROWS, PADDING}):
            yield from self._plan_field(name, found.get(name), self.plans.get(name))
        for wrong in _compare("store", found[PADDING][None], np.zeros_like(found[PADDING])[None]):
            yield attrs.evolve(wrong, row=-1)

    def _plan_field(
        self, name: str, got: np.ndarray | None, want: np.ndarray | None
    ) -> Iterator[Difference]:
        where = f"plan {name.removeprefix(PREFIX)}"
        if got is None or want is None:
            yield Difference(where=where, row=0, got=_state(got), want=_state(want), count=1)
            return
        got, want = got[: self.num_rows], want[: self.num_rows]
        if want.ndim == 2 and got.shape != want.shape:
            yield Difference(where=where, row=0, got=got.shape, want=want.shape, count=1)
            return
        # a block table: cells behind the used ones name the sink on the host, anything here
        used = want != 0 if name.endswith("_BW") else None
        yield from _compare(where, got, want, used)


@define(eq=False, kw_only=True)
class RowCheckCounts:
    """What was compared so far."""

    rows: int = 0
    steps: int = 0
    mismatches: int = 0
    """Cells that differed."""
    first: str | None = None
    """The first of them, in words."""


def _compare(
    where: str, got: np.ndarray, want: np.ndarray, used: np.ndarray | None = None
) -> Iterator[Difference]:
    wrong = got != want
    if used is not None:
        wrong &= used
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        cell = "".join(f"[{i}]" for i in at[1:])
        yield Difference(
            where=where + cell,
            row=int(at[0]),
            got=got[at].item(),
            want=want[at].item(),
            count=int(wrong.sum()),
        )


def _state(array: np.ndarray | None) -> str:
    return "absent" if array is None else "present"
