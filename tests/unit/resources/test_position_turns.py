"""The angles of positions: what defines them, and the kernel without a GPU."""

import math
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from mstar_core.resources.position.turning import turn, turning_for

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def test_a_position_is_the_index_and_the_offset_together():
    cos, sin = turn(torch.tensor([0, 5]), torch.tensor([0, -2]), torch.tensor([1.0, 0.1]))
    assert cos.dtype == sin.dtype == torch.float32
    torch.testing.assert_close(cos, torch.tensor([[1.0, 1.0], [math.cos(3), math.cos(0.3)]]))
    torch.testing.assert_close(sin, torch.tensor([[0.0, 0.0], [math.sin(3), math.sin(0.3)]]))


@needs_triton
def test_the_kernel_is_the_definition_in_the_interpreter(interpreted):
    interpreted(Path(__file__).with_name("interpreted_turns.py"))


@needs_triton
def test_a_gpu_gets_the_kernel_and_a_cpu_the_definition():
    assert turning_for(torch.device("cuda")).__module__ == "mstar_core.resources.position.triton"
    assert turning_for(torch.device("cpu")) is turn
