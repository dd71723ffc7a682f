"""Rows of a table in Triton's interpreter; ``test_taking.py`` runs this."""

import pytest
import torch

from mstar_core.ops import taking, triton

DTYPES = (torch.float32, torch.float16, torch.int64, torch.int32, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (1500,), (0,)], ids=str)
@pytest.mark.parametrize("T", [0, 1, 7])
def test_one_kernel_takes_rows_of_any_shape(shape, dtype, T):
    generator = torch.Generator().manual_seed(T)
    table = torch.randint(0, 50, (9, *shape), generator=generator).to(dtype)
    index = torch.randint(0, 9, (T, 3), generator=generator)[:, 1]
    want, got = taking.take(table, index), triton.take(table, index)
    assert got.dtype == want.dtype
    assert torch.equal(got, want)
