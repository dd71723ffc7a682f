"""Conformance of the kernels that begin a resident step on the tables of its rows."""

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
        """Rows of a step, and cells of theirs of which the first ``count`` are meant.

        No two are the same, and the first is the last of the first row. Of fewer cells than there
        is room for, and past them, what lies there names cells that nobody may write.
        """
        shape, random = self.shape, torch.Generator().manual_seed(seed)
        mine = (
            torch.tensor(slots, dtype=torch.int64)[:, None] * shape.C + torch.arange(shape.C)
        ).flatten()
        last, others = mine[shape.C - 1 : shape.C], mine[torch.arange(len(mine)) != shape.C - 1]
        mixed = others[torch.randperm(len(others), generator=random)]
        cells = torch.cat([last, mixed, torch.arange(shape.K)])[: shape.K]
        self.slots_B.zero_()
        self.slots_B[: len(slots)] = torch.tensor(slots, dtype=torch.int64)
        self.index_K.copy_(cells)
        self.value_K.copy_(_random((shape.K,), seed))
        self.count_1.fill_(min(count, len(mine)))

    def begin(self, kernels: TableKernels) -> dict[str, Tensor]:
        """What a resident graph does before its forward."""
        block = self.slots_B, self.index_K, self.value_K, self.count_1
        rows_BC, real_B, padding_B = kernels.begin(self.store_RC, *block, self.advance_N)
        return {"rows": rows_BC, "real": real_B, "padding": padding_B}

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
    def test_a_step_begins_as_the_definitions_say(self, shape: Shape, part: str) -> None:
        """The first staged cells are written and no other, rows are read and then advance."""
        tables = Tables.of(shape, self.device)
        count = {"none": 0, "one": 1, "all but one": shape.K - 1, "all": shape.K}[part]
        for slots in rows_of(shape):
            tables.stage(slots, count, seed=2)
            want = tables.copied()
            self.begin(tables, want)
            assert not tables.store_RC[0].any()

    @every_shape
    def test_what_was_staged_is_consumed(self, shape: Shape) -> None:
        tables = Tables.of(shape, self.device)
        tables.stage(rows_of(shape)[-1], shape.K, seed=3)
        self.begin(tables, tables.copied())
        assert tables.count_1.tolist() == [0]
        tables.value_K.add_(1)
        before = tables.copied()
        self.begin(tables, before)

    @every_shape
    def test_rows_are_read_whole_before_they_advance_and_padding_is_zero(
        self, shape: Shape
    ) -> None:
        tables = Tables.of(shape, self.device)
        for slots in rows_of(shape):
            tables.stage(slots, 0, seed=4)
            before = tables.store_RC.cpu().clone()
            got = {name: t.cpu() for name, t in tables.begin(self.kernels).items()}
            assert torch.equal(got["rows"][: len(slots)], before[slots])
            assert not got["rows"][len(slots) :].any()
            assert got["real"].tolist() == [True] * len(slots) + [False] * (shape.B - len(slots))
            assert got["padding"].tolist() == (~got["real"]).tolist()
            grown = tables.store_RC.cpu()[slots, : shape.N] - before[slots, : shape.N]
            assert torch.equal(grown, tables.advance_N.cpu().expand_as(grown))

    @every_shape
    def test_a_captured_step_is_an_eager_step_and_a_replay_stages_nothing(
        self, shape: Shape
    ) -> None:
        tables = Tables.of(shape, self.device)
        graphs = self.graphs(tables.buffers)
        graph = graphs.capture("tables", lambda: tables.begin(self.kernels), [])
        for n in range(9):
            if n % 2 == 0:
                tables.stage(rows_of(shape)[n % 3], min(n, shape.K), seed=n)
            want = tables.copied()
            begun = want.begin(TORCH)
            graph.replay()
            for name, found in begun.items():
                assert torch.equal(graph.outputs[name].cpu(), found)
            assert_same(tables, want)

    def begin(self, tables: Tables, want: Tables) -> None:
        """Begin a step on both, ``want`` by the definitions; both are then the same."""
        expected = want.begin(TORCH)
        for name, found in tables.begin(self.kernels).items():
            assert torch.equal(found.cpu(), expected[name])
        assert_same(tables, want)


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
