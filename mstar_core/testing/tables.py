"""Conformance of the kernels that read and write the tables of resident rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from attrs import define, frozen
from torch import Tensor

from mstar_core.engine.graphs import GraphBackend
from mstar_core.engine.recorder import Recorder
from mstar_core.fixed import FixedBuffers
from mstar_core.resident.kernels import TORCH, TableKernels


@frozen
class Shape:
    """Sizes of one case: rows and cells of the store, narrow cells, rows and cells of a step."""

    R: int
    C: int
    N: int
    B: int
    K: int


SHAPES = (Shape(4, 1, 1, 1, 1), Shape(18, 37, 5, 8, 40), Shape(6, 2500, 3, 3, 1100))
"""The smallest; an ordinary one; more cells than one program moves at a time."""
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@define(eq=False)
class Tables:
    """A store and a step's block, in memory that a graph may record."""

    shape: Shape
    buffers: FixedBuffers
    store_RC: Tensor
    slots_B: Tensor
    index_K: Tensor
    value_K: Tensor
    count_1: Tensor
    advance_N: Tensor

    @classmethod
    def of(cls, shape: Shape, device: str) -> Tables:
        """A random store whose padding row is zero, and an empty step."""
        buffers = FixedBuffers(torch.device(device))
        sizes = ((shape.R, shape.C), (shape.B,), (shape.K,), (shape.K,), (1,), (shape.N,))
        names = ("store", "slots", "index", "value", "count", "advance")
        claimed = [
            buffers.claim("tables", n, s, torch.int64) for n, s in zip(names, sizes, strict=True)
        ]
        claimed[0][1:].copy_(_random((shape.R - 1, shape.C), seed=1))
        claimed[5].copy_(torch.arange(shape.N) % 3)
        return cls(shape, buffers, *claimed)

    def stage(self, slots: Sequence[int], count: int, seed: int) -> None:
        """Rows of a step, and cells of which the first ``count`` are meant.

        No two are the same, and the first is the last that a request can own.
        """
        shape, random = self.shape, torch.Generator().manual_seed(seed)
        last = torch.tensor([(shape.R - 1) * shape.C - 1])
        others = torch.randperm((shape.R - 2) * shape.C - 1, generator=random) + shape.C
        self.slots_B.zero_()
        self.slots_B[: len(slots)] = torch.tensor(slots, dtype=torch.int64)
        self.index_K.copy_(torch.cat([last, others])[: shape.K])
        self.value_K.copy_(_random((shape.K,), seed))
        self.count_1.fill_(count)

    def step(self, kernels: TableKernels) -> dict[str, Tensor]:
        """What a resident graph does around its forward."""
        kernels.scatter_staged(self.store_RC, self.index_K, self.value_K, self.count_1)
        rows_BC = kernels.gather_rows(self.store_RC, self.slots_B)
        kernels.advance_rows(self.store_RC, self.slots_B, self.advance_N)
        return {"rows": rows_BC}

    def copied(self) -> Tables:
        """The same on the CPU, for the definitions."""
        mine = (self.store_RC, self.slots_B, self.index_K, self.value_K, self.count_1)
        return Tables(self.shape, self.buffers, *(t.cpu().clone() for t in (*mine, self.advance_N)))


class TableKernelsConformance:
    """Subclass it with ``kernels``, and ``device`` and ``graphs`` where they run on a GPU.

    The definitions say what is right; the trash row may hold anything.
    """

    kernels: ClassVar[TableKernels]
    device: ClassVar[str] = "cpu"

    def graphs(self, buffers: FixedBuffers) -> GraphBackend:
        """Captures on the device."""
        return Recorder(buffers)

    @every_shape
    @pytest.mark.parametrize("part", ["none", "one", "all but one", "all"])
    def test_the_first_staged_cells_are_written_and_no_other(self, shape: Shape, part: str) -> None:
        tables = Tables.of(shape, self.device)
        count = {"none": 0, "one": 1, "all but one": shape.K - 1, "all": shape.K}[part]
        tables.store_RC[0] = 7  # where a cell that was not read would be written
        tables.stage([], count, seed=2)
        want = tables.copied()
        TORCH.scatter_staged(want.store_RC, want.index_K, want.value_K, want.count_1)
        self.scatter(tables)
        assert_same(tables, want)

    @every_shape
    def test_what_was_staged_is_consumed(self, shape: Shape) -> None:
        tables = Tables.of(shape, self.device)
        tables.stage([], 1, seed=3)
        self.scatter(tables)
        assert tables.count_1.tolist() == [0]
        before = tables.copied()
        tables.value_K.add_(1)
        self.scatter(tables)
        assert_same(tables, before)

    @every_shape
    def test_rows_are_gathered_whole_and_padding_is_zero(self, shape: Shape) -> None:
        tables = Tables.of(shape, self.device)
        for slots in rows_of(shape):
            tables.stage(slots, 0, seed=4)
            got = self.kernels.gather_rows(tables.store_RC, tables.slots_B).cpu()
            want = tables.copied()
            assert torch.equal(got, TORCH.gather_rows(want.store_RC, want.slots_B))
            assert not got[len(slots) :].any()

    @every_shape
    def test_real_rows_advance_and_padding_does_not(self, shape: Shape) -> None:
        tables = Tables.of(shape, self.device)
        for slots in rows_of(shape):
            tables.stage(slots, 0, seed=5)
            want = tables.copied()
            TORCH.advance_rows(want.store_RC, want.slots_B, want.advance_N)
            self.kernels.advance_rows(tables.store_RC, tables.slots_B, tables.advance_N)
            assert_same(tables, want)
            assert not tables.store_RC[0].any()

    @every_shape
    def test_a_captured_step_is_an_eager_step_and_a_replay_stages_nothing(
        self, shape: Shape
    ) -> None:
        tables = Tables.of(shape, self.device)
        graphs = self.graphs(tables.buffers)
        graph = graphs.capture("tables", lambda: tables.step(self.kernels), [])
        for n in range(9):
            if n % 2 == 0:
                tables.stage(rows_of(shape)[n % 3], min(n, shape.K), seed=n)
            want = tables.copied()
            rows_BC = want.step(TORCH)["rows"]
            graph.replay()
            assert torch.equal(graph.outputs["rows"].cpu(), rows_BC)
            assert_same(tables, want)

    def scatter(self, tables: Tables) -> None:
        """Write what was staged."""
        self.kernels.scatter_staged(tables.store_RC, tables.index_K, tables.value_K, tables.count_1)


def rows_of(shape: Shape) -> list[list[int]]:
    """Rows of three steps: padding alone, one row at the end, as many as there may be."""
    last = shape.R - 2
    return [[], [last], list(range(last, 0, -1))[: shape.B]]


def assert_same(tables: Tables, want: Tables) -> None:
    """Both hold the same outside the trash row, and as much is staged."""
    assert torch.equal(tables.store_RC.cpu()[:-1], want.store_RC[:-1])
    assert tables.count_1.tolist() == want.count_1.tolist()


def _random(shape: tuple[int, ...], seed: int) -> Tensor:
    """Numbers that need all 64 bits."""
    return torch.randint(-(1 << 62), 1 << 62, shape, generator=torch.Generator().manual_seed(seed))
