"""Products at every tile of the table, against fp32."""

import pytest
import torch

from mstar_core.ops.backend import BindRequest
from mstar_core.ops.cases import normal, seeded
from mstar_core.ops.functional import rms_norm
from mstar_core.ops.linear import reference
from mstar_triton.linear import backend
from mstar_triton.linear.backend import BACKEND, MOST_ROWS, tiles

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
each_device = pytest.mark.parametrize("device", DEVICES)
SIZES = [
    (1, 100, 24),
    (1, 2000, 9),
    (2, 72, 40),
    (17, 300, 20),
    (40, 130, 33),
    (64, 64, 70),
    (70, 48, 20),
]


@pytest.fixture
def ops():
    request = BindRequest(operation="linear", device="cuda", dtype=torch.bfloat16)
    return BACKEND.bind(request)


@each_device
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_product_is_that_of_fp32_with_all_that_stands_around_it(ops, size, device):
    T, K, N = size
    g = seeded(size)
    made = [normal(g, T, 2 * K)[:, :K], normal(g, N, K) * K**-0.5, normal(g, N), normal(g, T, N)]
    x, weight, bias, residual = (t.to(device, torch.bfloat16) for t in made)
    norm = normal(g, K).to(device)
    wide = [t.float().cpu() for t in (x, weight, bias, residual, norm)]
    near = {"atol": 3e-2, "rtol": 3e-2}

    def same(got, want):
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.float().cpu(), want, **near)

    same(ops.linear(x, weight), wide[0] @ wide[1].T)
    same(ops.linear(x, weight, bias), wide[0] @ wide[1].T + wide[2])
    normed = rms_norm(wide[0], wide[4], 1e-5) @ wide[1].T
    same(ops.norm_linear(x, norm, weight, eps=1e-5), normed)
    want = wide[3] + wide[0] @ wide[1].T + wide[2]
    same(ops.linear_residual(x, weight, residual, bias), want)


@each_device
@pytest.mark.parametrize("rows", [1, 3])
def test_a_norm_of_large_fp16_stays_finite(ops, rows, device):
    x = torch.full((rows, 32), 6e4, dtype=torch.float16, device=device)
    weight = torch.full((16, 32), 1 / 32, dtype=torch.float16, device=device)
    norm = torch.full((32,), 3.0, device=device)
    got = ops.norm_linear(x, norm, weight, eps=1e-6)
    torch.testing.assert_close(got.float().cpu(), torch.full((rows, 16), 3.0), atol=0, rtol=1e-2)


@pytest.mark.parametrize("rows", [0, MOST_ROWS + 1])
def test_no_rows_and_many_rows_are_torchs(ops, rows, monkeypatch):
    monkeypatch.setattr(backend, "product", None)
    x, weight = torch.ones(rows, 8, dtype=torch.bfloat16), torch.ones(3, 8, dtype=torch.bfloat16)
    assert torch.equal(ops.linear(x, weight), reference.linear(x, weight))


def test_few_outputs_are_cut_into_narrow_columns():
    assert tiles(16, 1024, 2048)["BLOCK_N"] == 16
    assert tiles(16, 8224, 1024)["BLOCK_N"] == 32
    assert tiles(64, 8224, 1024)["BLOCK_N"] == 64
    assert tiles(2, 248320, 1024)["BLOCK_N"] == 128
    assert tiles(3, 248320, 1024)["BLOCK_M"] == 16
    assert tiles(128, 7168, 1024)["num_warps"] == 8


@pytest.mark.parametrize(("rows", "outputs", "ours"), [
    (64, 1024, True), (65, 1024, False), (128, 8224, True), (129, 8224, False),
])  # fmt: skip
def test_wide_outputs_take_more_rows(rows, outputs, ours):
    x, weight = (torch.empty(n, 32, dtype=torch.bfloat16) for n in (rows, outputs))
    assert backend.taken(x, weight) == ours


def test_fp32_is_left_to_another_backend():
    request = BindRequest(operation="linear", device="cuda", dtype=torch.float32)
    assert BACKEND.supports(request).code == "dtype"
