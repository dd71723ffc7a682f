"""The angles of positions in Triton's interpreter; ``test_position_turns.py`` runs this."""

import pytest
import torch

from mstar_core.resources.position import triton, turning


@pytest.mark.parametrize(("T", "R"), [(1, 4), (5, 64), (16, 24), (0, 8), (3, 0)])
def test_one_kernel_turns_by_index_and_offset(T, R):
    generator = torch.Generator().manual_seed(T)
    cells = torch.randint(0, 5000, (T, 3), generator=generator)
    cells[:, 2] = torch.randint(-100, 100, (T,), generator=generator)
    frequency = 1e7 ** -torch.linspace(0, 1, R)
    want = turning.turn(cells[:, 0], cells[:, 2], frequency)
    got = triton.turn(cells[:, 0], cells[:, 2], frequency)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-7, rtol=0)
