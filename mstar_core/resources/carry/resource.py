"""Carry: what only the device knows until a step is read, one row per request, for life.

::

    step M    forward → sampled token ─┐ write(name, values_B)      (not read by the host yet)
                                       ▼
              carry row of the request [ token ]
                                       │ read(name, host_T)
    step M+1  forward ◄────────────────┘ is_carry_T: from the row, else from the host

Row 0 is trash: a row that does not sample, and padding, write there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from attrs import define
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.ops.taking import taking_for
from mstar_core.resources.base import BuildEnv, Opening, Resource, ResourceSpec
from mstar_core.resources.carry.config import CarryConfig, CarryOptions
from mstar_core.resources.carry.plan import CarryPlan, CarryStep
from mstar_core.resources.fence import IdPool
from mstar_core.resources.resident import Column, ResidentRows
from mstar_core.resources.settings import read_settings
from mstar_core.step import Lease, Plan, ResourceStep, Shortage


@define(kw_only=True, eq=False)
class CarryResource(Resource):
    """The carry rows of one node. Steps are :class:`CarryStep`."""

    kind: ClassVar[str] = "carry"
    Options: ClassVar[type] = CarryOptions
    Config: ClassVar[type] = CarryConfig
    resident_adds: ClassVar[tuple[int, ...]] = (1,)

    key: str
    options: CarryOptions
    tensors: Mapping[str, Tensor]
    """Name → ``[rows, *shape]``."""
    ids: IdPool
    row: np.ndarray
    """int64 per request; 0: no row."""
    written: np.ndarray
    """bool per request: a step that samples has been launched."""

    @classmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> CarryResource:
        options = read_settings(CarryOptions, spec.options, f"resource {spec.key}.options")
        read_settings(CarryConfig, env.config, f"resources.{spec.key}")
        num_rows = env.max_rows + 1
        tensors = {}
        for name, (shape, dtype, fill) in options.tensors.items():
            tensors[name] = env.claim(spec.key, name, (num_rows, *shape), dtype).fill_(fill)
        return cls(
            key=spec.key,
            options=options,
            tensors=tensors,
            ids=IdPool(num_rows, env.fences),
            row=env.table.column(np.int64),
            written=env.table.column(np.bool_),
        )

    @property
    def num_rows(self) -> int:
        """Rows, the trash row included."""
        return self.ids.num_ids + 1

    def read(self, name: str, host_T: Tensor | None, plan: CarryPlan) -> Tensor:
        """The looped input ``name``: the row's value where the plan says so, else ``host_T``.

        Without ``host_T`` only padding has no row of its own. It reads trash, which is what padding
        left there: a number as valid as any, and zeros in place of floats that need not be finite.
        """
        rows = self.tensors[name]
        found_T = taking_for(rows.device)(rows, plan.read_T)
        if host_T is None and not found_T.is_floating_point():
            return found_T
        is_carry = plan.is_carry_T.view(-1, *[1] * (found_T.dim() - 1))
        return torch.where(is_carry, found_T, 0 if host_T is None else host_T)

    def write(self, name: str, values_B: Tensor, plan: CarryPlan) -> None:
        """Keep each sampling row's output for its next step."""
        rows = self.tensors[name]
        rows.index_copy_(0, plan.write_B, values_B.to(rows.dtype))

    def can_open(self, opening: Opening) -> Shortage | None:
        return self._no_row()

    def open(self, handle: int, opening: Opening) -> None:
        self.row[handle] = self.ids.take(1)[0]

    def plan(
        self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]
    ) -> CarryPlan:
        part, n = carry_step(step), step.num_rows
        rows, tokens = n, step.num_tokens
        if lease is not None:
            rows, tokens = lease.bucket.rows, lease.bucket.tokens
        own_B = self.row[step.handles_B]
        write_B, row_B = np.zeros((2, rows), dtype=np.int64)
        row_B[:n] = own_B
        write_B[:n] = own_B * part.samples_B
        fresh_B = np.ones(rows, dtype=np.bool_)
        fresh_B[:n] = ~self.written[step.handles_B]
        read_T = np.zeros(tokens, dtype=np.int64)
        is_carry_T = np.zeros(tokens, dtype=np.bool_)
        carry_T = np.repeat(part.carry_B, step.spans_B)
        is_carry_T[: len(carry_T)] = carry_T
        read_T[: len(carry_T)] = np.repeat(own_B, step.spans_B) * carry_T
        return CarryPlan(
            read_T=read_T, is_carry_T=is_carry_T, write_B=write_B, row_B=row_B, fresh_B=fresh_B
        )

    def reuse_refusal(self) -> Refusal | None:
        return None

    def resident_refusal(self, walk: str) -> Refusal | None:
        return None

    def resident_columns(self) -> tuple[Column, ...]:
        return (Column(name="row", host=self.row),)

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> CarryPlan:
        """Every real row reads what its last step left, and samples."""
        row_B = cells["row"]
        return CarryPlan(
            read_T=row_B,
            is_carry_T=rows.real_B,
            write_B=row_B,
            row_B=row_B,
            fresh_B=rows.padding_B,
        )

    def commit(self, step: ResourceStep) -> None:
        self.written[step.handles_B] |= carry_step(step).samples_B

    def close(self, handle: int, fence: int) -> None:
        if self.row[handle]:
            self.ids.give_back([self.row[handle]], fence)
        self.row[handle] = 0
        self.written[handle] = False

    def pieces(self, handle: int) -> Sequence[Tensor]:
        """The row of every tensor."""
        return [rows[self.row[handle]] for rows in self.tensors.values()]

    def offload(self, handle: int, fence: int) -> None:
        self.ids.give_back([self.row[handle]], fence)
        self.row[handle] = 0

    def can_reload(self, handle: int) -> Shortage | None:
        return self._no_row()

    def reload(self, handle: int) -> None:
        self.row[handle] = self.ids.take(1)[0]

    def rebuilds(self, opening: Opening) -> bool:
        return True

    def held(self) -> Mapping[str, tuple[int, int]]:
        return {"carry rows": (self.ids.num_free + self.ids.num_cooling, self.ids.num_ids)}

    def _no_row(self) -> Shortage | None:
        if self.ids.num_free:
            return None
        return Shortage(
            key=self.key, need=1, free=0, cooling=self.ids.num_cooling, unit="carry rows"
        )


def carry_step(step: ResourceStep) -> CarryStep:
    """``step`` as the declaration that says who samples. Raises TypeError for any other."""
    if not isinstance(step, CarryStep):
        raise TypeError(f"{step.key}: a {type(step).__name__} does not say which rows sample")
    return step
