"""Heads as wide as published ones, against the reference in fp32."""

import pytest
import torch
from attrs import evolve, fields

from mstar_core.ops.backend import BindRequest
from mstar_core.ops.gated_delta import cases, contract, reference
from mstar_triton.gated_delta import prefill_launches
from mstar_triton.gated_delta.backend import BACKEND

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
each_device = pytest.mark.parametrize("device", DEVICES)
PROGRAMS = pytest.mark.parametrize("programs", [1 << 20, 0], ids=["few", "many"])
"""What counts as few: then each has a multiprocessor to itself, of many two share one."""
GROUPS = pytest.mark.parametrize("v_heads", [2, 4], ids=["alone", "pairs"])


def geometry_of(case):
    names = ("num_k_heads", "num_v_heads", "k_dim", "v_dim")
    sizes = {name: getattr(case, name) for name in names}
    return sizes | {"conv_taps": case.taps, "activation": "silu"}


def request_of(case, dtype=torch.float32, **more):
    geometry = geometry_of(case) | more
    return BindRequest(operation="gated_delta", device="cuda", dtype=dtype, geometry=geometry)


def there(record, device):
    """``record`` with its tensors on ``device``."""
    found = {a.name: getattr(record, a.name) for a in fields(type(record))}
    return evolve(
        record, **{n: v.to(device) for n, v in found.items() if isinstance(v, torch.Tensor)}
    )


def both(case, device, dtype=torch.float32, change=None):
    """``((out, pools) of the kernels, of the definition)``, with strided inputs."""
    found = []
    for step in (BACKEND.bind(request_of(case, dtype)).step, reference.step):
        x = cases.lay(case, dtype=dtype, garbage=float("nan"))
        if change is not None:
            change(x)
        plan, pools, weights = (there(r, device) for r in (x.plan, x.pools, x.weights))
        parts = [x.qkv_TC, x.z_TV, x.b_TH, x.a_TH]
        packed = torch.cat(parts, -1).to(device)  # as one projection leaves them
        inputs = torch.split(packed, [part.shape[1] for part in parts], -1)
        out = step(*inputs, weights, pools, plan)[: x.num_real]
        found.append([out.cpu(), pools.conv_SCK[1:].cpu(), pools.ssm_SHDE[1:].cpu()])
    return found


def assert_same(found, near=1e-4):
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, atol=near, rtol=near, equal_nan=True)


@each_device
@GROUPS
@pytest.mark.parametrize("times", [1, 17], ids=["few", "many"])
def test_a_decode_step_of_wide_heads_is_the_definition(v_heads, times, device):
    """Of few rows the states are cut into eight parts, of many into two."""
    rows = ((1, False), (1, True)) * times
    case = cases.Case(
        name="wide", rows=rows, decode=1, pad_rows=1, num_k_heads=2, num_v_heads=v_heads,
        k_dim=128, v_dim=128,
    )  # fmt: skip
    assert_same(both(case, device))


def test_slots_and_freshness_may_be_columns_of_a_table():
    """A resident step hands over views of the rows that it gathered."""
    case = cases.Case(name="columns", rows=((1, False), (1, True), (1, False)), decode=1)
    step, found = BACKEND.bind(request_of(case)).step, []
    for wide in (1, 5):
        x = cases.lay(case)
        columns = {
            name: getattr(x.plan, name)[:, None].repeat(1, wide)[:, 0]
            for name in ("slots_B", "fresh_B")
        }
        plan = evolve(x.plan, **columns)
        out = step(x.qkv_TC, x.z_TV, x.b_TH, x.a_TH, x.weights, x.pools, plan)
        found.append([out, x.pools.conv_SCK, x.pools.ssm_SHDE])
    for got, want in zip(*found, strict=True):
        assert torch.equal(got.nan_to_num(), want.nan_to_num())


@each_device
@GROUPS
def test_a_mixed_step_of_wide_heads_is_the_definition(v_heads, device):
    """A lead of two, a prompt of more than a chunk, a chunk that goes on, padding behind them."""
    rows = ((1, False), (1, True), (70, True), (2, False), (0, False))
    case = cases.Case(
        name="wide", rows=rows, lead=3, pad_rows=2, pad_tokens=5, num_k_heads=2,
        num_v_heads=v_heads, k_dim=128, v_dim=64,
    )  # fmt: skip
    assert_same(both(case, device))


def equal_keys(x):
    """Every token has the keys of the first."""
    x.qkv_TC[:, 64:128] = x.qkv_TC[0, 64:128]


def large_values(x):
    """The output passes the range of fp16 before its norm."""
    x.qkv_TC.mul_(1e4)


def values_that_drop(x):
    """Some chunks have values a millionth of the others', and all decay fast."""
    x.qkv_TC[64:128] *= 1e-3
    x.qkv_TC[:64] *= 1e3
    x.a_TH.mul_(20).add_(5)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
@each_device
@pytest.mark.parametrize("change", [equal_keys, large_values, values_that_drop])
def test_a_prompt_in_bf16_is_near_the_definition(change, device):
    """Its products are of fp16: nothing passes their range, and little is lost at its end."""
    case = cases.Case(
        name="hard", rows=((150, True), (70, False)), num_k_heads=1, num_v_heads=1,
        k_dim=64, v_dim=80,
    )  # fmt: skip
    (out, window, state), wanted = both(case, device, torch.bfloat16, change)
    near = contract.TOLERANCE[torch.bfloat16]
    assert_same(((out, window), wanted[:2]), near)
    largest = wanted[2].nan_to_num().abs().max()
    assert_same(((state / largest,), (wanted[2] / largest,)), 1e-2)


@each_device
@PROGRAMS
def test_prompts_of_few_and_many_programs_are_the_definition(programs, device, monkeypatch):
    """Rows of no token, of fewer than the taps, of several chunks, behind a lead, before padding.

    What memory held before reaches none of them, and not their states.
    """
    monkeypatch.setattr(prefill_launches, "FEW_PROGRAMS", programs)
    case = cases.Case(
        name="programs", rows=((1, False), (150, True), (0, False), (2, False), (70, False)),
        lead=1, pad_rows=2, pad_tokens=5, num_k_heads=1, num_v_heads=2, k_dim=64, v_dim=80,
    )  # fmt: skip
    found = both(case, device, torch.bfloat16)
    assert_same(found, contract.TOLERANCE[torch.bfloat16])
    empty = torch.empty

    def poisoned(*shape, **kwargs):
        made = empty(*shape, **kwargs)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)
    assert_same((both(case, device, torch.bfloat16)[0], found[0]), 0.0)


@each_device
def test_a_prompt_behind_a_window_wider_than_a_block_of_tokens_is_the_definition(device):
    rows = ((3, False), (40, True), (50, False))
    case = cases.Case(name="taps", rows=rows, num_k_heads=1, num_v_heads=1, taps=20)
    assert_same(both(case, device, torch.float32), contract.TOLERANCE[torch.float32])


@pytest.mark.gpu
@PROGRAMS
def test_three_runs_are_equal_to_the_bit(programs, monkeypatch):
    monkeypatch.setattr(prefill_launches, "FEW_PROGRAMS", programs)
    rows = ((1, False), (300, True), (64, False))
    case = cases.Case(name="wide", rows=rows, num_k_heads=2, num_v_heads=4, k_dim=128, v_dim=128)
    runs = [both(case, "cuda", torch.bfloat16)[0] for _ in range(3)]
    for other in runs[1:]:
        for got, want in zip(other, runs[0], strict=True):
            assert torch.equal(got.nan_to_num(), want.nan_to_num())


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"k_dim": 256}, "head-dim"),
        ({"activation": "gelu"}, "activation"),
        ({"checkpoint_every": 64}, "checkpoints"),
    ],
)
def test_what_no_kernel_does_is_refused(more, code):
    case = cases.Case(name="wide", rows=((1, True),), k_dim=128, v_dim=128)
    assert BACKEND.supports(request_of(case, torch.bfloat16)) is None
    assert BACKEND.supports(request_of(case, torch.bfloat16, **more)).code == code
