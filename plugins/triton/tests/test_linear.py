"""Products at every tile of the table, against fp32."""

import pytest
import torch

from mstar_core.launch import door
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.cases import normal, seeded
from mstar_core.ops.functional import rms_norm
from mstar_core.ops.linear import reference
from mstar_triton.backend import Cells
from mstar_triton.linear import many, streamed
from mstar_triton.linear.backend import BACKEND
from mstar_triton.linear.launches import MOST_ROWS, Ends, few_rows, taken, tiles

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
each_device = pytest.mark.parametrize("device", DEVICES)
SIZES = [
    (1, 100, 24),
    (1, 2000, 9),
    (2, 72, 40),
    (2, 400, 40),
    (3, 2200, 20),
    (17, 300, 20),
    (40, 400, 20),
    (40, 2200, 20),
    (40, 600, 33),
    (100, 64, 70),
]
GATED = [(1, 600, 40), (3, 100, 24), (40, 130, 33), (130, 24, 70)]


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


@each_device
@pytest.mark.parametrize(
    "size", [(1, 600, 40), (3, 100, 24), (40, 130, 33), (130, 24, 70)], ids=str
)
def test_a_gate_stands_behind_both_products(ops, size, device):
    T, K, N = size
    g = seeded(size)
    made = [normal(g, T, K), normal(g, 2 * N, K) * K**-0.5]
    x, weight = (t.to(device, torch.bfloat16) for t in made)
    norm = normal(g, K).to(device)
    wide = [t.float().cpu() for t in (x, weight, norm)]
    gate, up = (rms_norm(wide[0], wide[2], 1e-5) @ wide[1].T).chunk(2, -1)
    got = ops.norm_gated(x, norm, weight, eps=1e-5)
    assert got.dtype == torch.bfloat16
    want = gate * gate.sigmoid() * up
    torch.testing.assert_close(got.float().cpu(), want, atol=4e-2, rtol=4e-2)


@each_device
def test_parts_count_themselves_from_zero_to_zero(device):
    """So the next product, and every replay of a captured one, finds what the first one found."""
    g, cells = seeded("parts"), Cells()
    x, weight = (normal(g, rows, 600).to(device, torch.float16) for rows in (5, 70))
    first = few_rows(x, weight, Ends(), cells)
    assert tiles(5, 70, 600, gated=False)["SPLITS"] == 4
    for _ in range(3):
        assert torch.equal(few_rows(x, weight, Ends(), cells), first)
    want = x.float() @ weight.float().T
    torch.testing.assert_close(first.float(), want, atol=0.1, rtol=1e-2)


STREAMED = [
    (1, 1024, 8224), (1, 3584, 1024), (2, 48, 40), (5, 1040, 100), (16, 1024, 8224),
    (16, 3584, 1024), (17, 2064, 70),
    (32, 1024, 4128), (33, 2048, 1000), (64, 1024, 5120), (70, 3584, 520), (128, 2560, 4100),
]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", STREAMED, ids=str)
def test_a_streamed_product_is_that_of_fp32_and_its_cells_end_at_zero(size, dtype):
    T, K, N = size
    g, cells = seeded(size), Cells()
    made = [normal(g, T, 2 * K)[:, :K], normal(g, 2 * N, K) * K**-0.5, normal(g, T, N)]
    x, weight, residual = (t.to("cuda", dtype) for t in made)
    bias, norm = normal(g, N).to("cuda", dtype), normal(g, K).to("cuda")
    wide = [t.float() for t in (x, weight, residual, bias)]
    if not streamed.streams(x, weight):
        pytest.skip("no Hopper")
    near = {"atol": 4e-2, "rtol": 4e-2}
    for _ in range(3):
        ends = Ends(bias_F=bias, residual_TF=residual)
        got = streamed.streamed(x, weight[:N].contiguous(), ends, cells)
        torch.testing.assert_close(got.float(), wide[0] @ wide[1][:N].T + wide[3] + wide[2], **near)
        got = streamed.streamed(x, weight, Ends(norm_H=norm, eps=1e-5, gated=True), cells)
        gate, up = (rms_norm(wide[0], norm, 1e-5) @ wide[1].T).chunk(2, -1)
        torch.testing.assert_close(got.float(), gate * gate.sigmoid() * up, **near)
    assert all(not made.any() for made in cells._made.values())


def test_streamed_tiles_follow_from_rows_and_outputs():
    def chosen(*shape, gated=False):
        tile = streamed.tiles(*shape, gated)
        names = ("SPLITS", "BLOCK_M", "BLOCK_K", "TILES", "STAGES", "X_STAGES")
        return [tile[n] for n in names]

    assert chosen(16, 8224, 1024) == [1, 16, 256, 4, 4, 4]
    assert chosen(1, 3584, 1024, gated=True) == [1, 16, 256, 4, 4, 4]
    assert chosen(3, 1024, 2048) == [2, 16, 256, 4, 4, 4]
    assert chosen(30, 1024, 3584) == [4, 32, 256, 4, 4, 4]
    assert chosen(64, 1024, 2048) == [2, 32, 128, 8, 8, 8]
    assert chosen(128, 1024, 3584) == [2, 32, 128, 14, 8, 8]
    assert chosen(30, 12352, 2560) == [1, 32, 128, 20, 4, 4]
    assert chosen(64, 5120, 1024) == [1, 64, 128, 8, 5, 5]
    assert chosen(128, 3584, 1024, gated=True) == [1, 128, 64, 16, 8, 8]
    assert chosen(2, 2560, 9216) == [3, 16, 256, 12, 4, 4]


MANY = [(130, 72, 40), (200, 136, 200), (300, 128, 64)]
LARGE = [
    (129, 3584, 1024), (130, 1024, 3584), (256, 3584, 1024), (300, 1000, 200), (517, 2048, 2056),
    (1000, 3584, 1024), (2048, 1024, 3584), (2048, 3584, 1024), (4096, 1024, 3584),
    (4096, 3584, 1024),
]  # fmt: skip


def within_nan(x):
    """The same numbers, with NaN around them: in the rows' other half, and before and behind."""
    wide = x.new_full((len(x) + 16, 2 * x.shape[1]), float("nan"))
    wide[8:-8, : x.shape[1]] = x
    return wide[8:-8, : x.shape[1]]


def amid_nan(weight):
    """The same, contiguous, with NaN before and behind."""
    wide = weight.new_full((len(weight) + 16, weight.shape[1]), float("nan"))
    wide[8:-8] = weight
    return wide[8:-8]


def many_and_fp32(size, dtype, device, tile):
    """``(found, wanted)`` of a gated product and of one with a residual, of parts of wider rows."""
    T, K, N = size
    g = seeded(size)
    made = [normal(g, T, K), normal(g, 2 * N, K) * K**-0.5, normal(g, T, N)]
    x, weight, residual = (t.to(device, dtype) for t in made)
    x, residual, weight = within_nan(x), within_nan(residual), amid_nan(weight)
    both, half = x.float() @ weight.float().T, weight[:N]
    gate, up = both.chunk(2, -1)
    wanted = [gate * gate.sigmoid() * up, residual.float() + gate]
    return [many.many_rows(x, weight, tile), many.many_rows(x, half, tile, residual)], wanted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("size", "device"),
    [*((s, "cpu") for s in MANY), *(pytest.param(s, "cuda", marks=pytest.mark.gpu) for s in LARGE)],
    ids=str,
)
@pytest.mark.parametrize("tile", [tile for _, *tile in many.TILES], ids=str)
def test_a_product_of_many_rows_has_gate_and_residual_inside(size, device, tile, dtype):
    if device == "cuda" and not streamed.hopper(torch.device("cuda", 0)):
        pytest.skip("no Hopper")
    found, wanted = many_and_fp32(size, dtype, device, tile)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), want, atol=4e-2, rtol=4e-2)
    for _ in range(2 if device == "cuda" else 0):
        again, _ = many_and_fp32(size, dtype, device, tile)
        assert all(map(torch.equal, again, found))


def test_tiles_of_many_rows_fill_the_device_or_are_a_librarys():
    """As they were faster; of rows that nearly empty the last round a library's are."""
    gates = {T: many.tile_of(T, 1024, 7168, gated=True) for T in (192, 512, 768, 1024, 4096)}
    assert gates == {192: None, 512: (128, 3), 768: None, 1024: (128, 3), 4096: (128, 3)}
    assert many.tile_of(4096, 1025, 7168, gated=True) is None
    rest = {
        T: many.tile_of(T, 3584, 1024, gated=False) for T in (512, 1024, 1280, 2048, 2560, 4096)
    }
    assert [rest[T] for T in (512, 1280, 2560)] == [None] * 3
    assert [rest[T] for T in (1024, 2048, 4096)] == [(64, 8), (128, 6), (128, 3)]


def test_many_rows_launch_a_product_and_nothing_behind_it(ops, monkeypatch):
    monkeypatch.setattr(many, "hopper", lambda device: True)
    monkeypatch.setattr(many, "FULL", 0)
    x, weight = torch.zeros(130, 64).bfloat16(), torch.zeros(128, 64).bfloat16()
    names = []

    def keep(kernel, args, kwargs):
        names.append(kernel.__name__ if hasattr(kernel, "__name__") else str(kernel))
        kernel(*args, **kwargs)

    with door(keep):
        ops.norm_gated(x, torch.ones(64), weight, eps=1e-5)
        ops.linear_residual(x, weight[:64], x)
    assert len(names) == 3, names  # the norm, and a product each


def test_rows_that_the_accelerator_cannot_copy_are_left_to_the_library(monkeypatch):
    monkeypatch.setattr(many, "hopper", lambda device: True)
    monkeypatch.setattr(many, "FULL", 0)
    x, weight = torch.zeros(130, 80).bfloat16(), torch.zeros(32, 64).bfloat16()
    assert many.many(x[:, :64], weight, x[:, :32])
    assert not many.many(x[:128, :64], weight)
    assert not many.many(x[:, 1:65], weight)
    assert not many.many(x[:, :64], weight[:24])
    assert not many.many(x[:, :64].float(), weight)
    assert not many.many(x[:, :64], weight, torch.zeros(32, 130).bfloat16().t())


def test_rows_that_begin_anywhere_are_not_streamed(monkeypatch):
    monkeypatch.setattr(streamed, "hopper", lambda device: True)
    weight = torch.empty(64, 32, dtype=torch.bfloat16)
    assert streamed.streams(torch.empty(2, 32, dtype=torch.bfloat16), weight)
    assert not streamed.streams(torch.empty(2, 40, dtype=torch.bfloat16)[:, :32], weight)
    assert not streamed.streams(weight, torch.empty(70000, 32, dtype=torch.bfloat16))


@pytest.mark.parametrize("rows", [0, MOST_ROWS + 1])
def test_no_rows_and_many_rows_are_torchs(ops, rows):
    x, weight = torch.ones(rows, 8, dtype=torch.bfloat16), torch.ones(3, 8, dtype=torch.bfloat16)
    assert not taken(x, weight)
    assert torch.equal(ops.linear(x, weight), reference.linear(x, weight))


@each_device
def test_many_rows_and_their_residual_are_rounded_at_most_twice(ops, device):
    """A library's product may be rounded before the residual is added, as it is on an H200."""
    g = seeded("many")
    made = [normal(g, 200, 64), normal(g, 24, 64) / 8, 100 * normal(g, 200, 24)]
    x, weight, residual = (t.to(device, torch.bfloat16) for t in made)
    got = ops.linear_residual(x, weight, residual).double()
    product = x.double() @ weight.double().T
    want = residual.double() + product
    most = 2**-8 * (want.abs() + product.abs()) + 1e-5
    assert ((got - want).abs() <= most).all()


def test_tiles_follow_from_rows_and_outputs():
    def chosen(*shape, gated=False):
        tile = tiles(*shape, gated)
        return [tile[n] for n in ("BLOCK_M", "BLOCK_N", "SPLITS", "num_stages", "AHEAD")]

    assert chosen(3, 1024, 2048) == [16, 32, 4, 6, 4]
    assert chosen(3, 1024, 3584) == [16, 16, 4, 6, 4]
    assert chosen(30, 1024, 3584) == [32, 32, 4, 6, 0]
    assert chosen(64, 1024, 3584) == [64, 32, 4, 4, 1]
    assert chosen(128, 1024, 3584) == [128, 32, 4, 4, 0]
    assert chosen(16, 8224, 1024) == [64, 64, 1, 4, 0]
    assert chosen(64, 8224, 1024) == [64, 64, 1, 4, 0]
    assert chosen(128, 3584, 1024, gated=True) == [128, 32, 1, 4, 0]
    assert chosen(2, 248320, 1024) == [16, 128, 1, 3, 0]


@pytest.mark.parametrize(("rows", "outputs", "ours"), [
    (128, 1024, True), (129, 8224, False), (32, 248320, True), (33, 248320, False),
])  # fmt: skip
def test_a_head_of_many_rows_is_torchs(rows, outputs, ours):
    x, weight = (torch.empty(n, 32, dtype=torch.bfloat16) for n in (rows, outputs))
    assert taken(x, weight) == ours


def test_fp32_is_left_to_another_backend():
    request = BindRequest(operation="linear", device="cuda", dtype=torch.float32)
    assert BACKEND.supports(request).code == "dtype"
