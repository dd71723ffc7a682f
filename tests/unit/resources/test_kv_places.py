"""Where the tokens of a decode step go: what defines it, and the kernel without a GPU."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from mstar_core.resources.kv.placing import place, placing_for

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def test_a_token_goes_behind_those_that_are_held_and_padding_to_cell_0():
    before, real = torch.tensor([5, 0, 8]), torch.tensor([True, False, True])
    pages = torch.tensor([[7, 3, 0], [0, 0, 0], [2, 9, 4]])
    table, held, after, write = place(before, pages, real, 4)
    assert table.dtype == held.dtype == after.dtype == torch.int32
    assert table.tolist() == pages.tolist()
    assert held.tolist() == [5, 0, 8]
    assert after.tolist() == [6, 0, 9]
    assert write.tolist() == [3 * 4 + 1, 0, 4 * 4]


@needs_triton
def test_the_kernel_is_the_definition_in_the_interpreter(interpreted):
    interpreted(Path(__file__).with_name("interpreted_places.py"))


@needs_triton
def test_a_gpu_gets_the_kernel_and_a_cpu_the_definition():
    assert placing_for(torch.device("cuda")).__module__ == "mstar_core.resources.kv.triton"
    assert placing_for(torch.device("cpu")) is place
