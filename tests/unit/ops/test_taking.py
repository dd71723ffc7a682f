"""Rows of a table by number: what defines them, and the kernel without a GPU."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from mstar_core.ops.taking import take, taking_for

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def test_rows_come_in_the_order_of_the_index():
    table = torch.tensor([[0, 1], [10, 11], [20, 21]])
    assert take(table, torch.tensor([2, 0, 2])).tolist() == [[20, 21], [0, 1], [20, 21]]


@needs_triton
def test_the_kernel_is_the_definition_in_the_interpreter(interpreted):
    interpreted(Path(__file__).with_name("interpreted_taking.py"))


@needs_triton
def test_a_gpu_gets_the_kernel_and_a_cpu_the_definition():
    assert taking_for(torch.device("cuda")).__module__ == "mstar_core.ops.triton"
    assert taking_for(torch.device("cpu")) is take
