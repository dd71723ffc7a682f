"""The places of a decode step in Triton's interpreter; ``test_kv_places.py`` runs this."""

import pytest
import torch

from mstar_core.resources.kv import placing, triton

SIZES = [(1, 1, 4), (8, 5, 16), (3, 1500, 2)]


def columns(B, W, page_tokens):
    """Two columns of one table with a padding row in the middle: strided, as they are gathered."""
    generator = torch.Generator().manual_seed(B * W)
    cells = torch.randint(1, 900, (B, W + 3), generator=generator)
    cells[:, 1] = torch.randint(0, W * page_tokens, (B,), generator=generator)
    cells[0, 1] = W * page_tokens - 1
    real = torch.ones(B, dtype=torch.bool)
    real[B // 2] = B == 1
    cells[~real] = 0
    return cells[:, 1], cells[:, 3:], real


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_kernel_finds_the_places_of_every_row(size):
    given = columns(*size)
    want = placing.place(*given, size[2])
    got = triton.place(*given, size[2])
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)
