"""The kernels of a resident step: what defines them, Triton's without a GPU, and who is chosen."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from mstar_core.resident.kernels import TORCH, kernels_for
from mstar_core.testing.tables import TableKernelsConformance

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
POINTER = "*i64"
NUMBERS = ("store", "slots", "index", "value", "count", "advance", "rows")
SIGNATURE = {f"{name}_ptr": POINTER for name in NUMBERS}
SIGNATURE |= {"real_ptr": "*i1", "padding_ptr": "*i1", "C": "i32", "N": "i32"}
TARGETS = {"sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
COUNTED = {
    "sm_90": ("ptx", "bar.sync", "atom.global"),
    "gfx942": ("amdgcn", "s_barrier", "global_atomic_add"),
}


class TestDefinitions(TableKernelsConformance):
    kernels = TORCH


@pytest.fixture
def store():
    """Four rows of three cells: padding, two real ones, trash."""
    return torch.tensor([[0, 0, 0], [10, 11, 12], [20, 21, 22], [0, 0, 0]])


def test_staged_cells_are_flat_and_end_at_the_count(store):
    count = torch.tensor([2])
    TORCH.scatter_staged(store, torch.tensor([3, 8, 4]), torch.tensor([-1, -2, -3]), count)
    assert store[:3].tolist() == [[0, 0, 0], [-1, 11, 12], [20, 21, -2]]
    assert count.tolist() == [0]


def test_rows_come_in_the_order_of_the_step(store):
    assert TORCH.gather_rows(store, torch.tensor([2, 0, 1])).tolist() == [
        [20, 21, 22],
        [0, 0, 0],
        [10, 11, 12],
    ]


def test_only_the_narrow_cells_of_real_rows_advance(store):
    TORCH.advance_rows(store, torch.tensor([2, 0, 0]), torch.tensor([1, 4]))
    assert store[:3].tolist() == [[0, 0, 0], [10, 11, 12], [21, 25, 22]]


@needs_triton
def test_the_triton_kernels_are_the_definitions_in_the_interpreter(interpreted):
    interpreted(Path(__file__).with_name("interpreted.py"))


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """``compiled(target)``: the kernel's code in every stage, never from a cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def compile_for(target):
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        from mstar_core.resident import triton as module

        sizes = {"BLOCK": 1024, "CELLS": 256}
        signature = SIGNATURE | dict.fromkeys(sizes, "constexpr")
        source = ASTSource(module.begin_kernel, signature, constexprs=sizes)
        made = triton.compile(source, target=GPUTarget(*TARGETS[target]), options=module.OPTIONS)
        return made.asm

    return compile_for


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_the_kernel_compiles(compiled, target):
    assert compiled(target)["cubin" if target == "sm_90" else "hsaco"]


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_the_count_is_counted_behind_a_barrier(compiled, target):
    """Before it a warp could still have to read what the last program has cleared."""
    stage, barrier, counted = COUNTED[target]
    code = compiled(target)[stage]
    assert code.count(counted) == 1
    assert 0 <= code.index(barrier) < code.index(counted)


@needs_triton
def test_a_gpu_gets_triton_and_a_cpu_the_definitions():
    assert kernels_for(torch.device("cuda")).name == "triton"
    assert kernels_for(torch.device("cpu")) is TORCH


def test_a_gpu_without_triton_gets_the_definitions(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    assert kernels_for(torch.device("cuda")) is TORCH
