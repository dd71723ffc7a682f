"""Wide heads, long rows and keys split over programs, against the reference in fp32."""

from functools import partial

import pytest
import torch
from attrs import evolve

from mstar_core.ops.backend import BindRequest
from mstar_core.ops.functional import rope_angles
from mstar_core.ops.paged_attention import AttentionStep, cases, reference
from mstar_core.ops.ragged_attention import cases as ragged
from mstar_core.ops.ragged_attention import reference as ragged_reference
from mstar_triton.attention.decode_kernels import AT_ONCE
from mstar_triton.attention.decoding import splits_for
from mstar_triton.attention.paged import BACKEND
from mstar_triton.attention.ragged import BACKEND as RAGGED

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
LONG = ((299, 1), (0, 1), (70, 1))
"""Rows of a decode step: one of many tiles, one that begins, one of few."""
SIZES = [
    (64, 16, 4, 4),
    (128, 64, 8, 2),
    (256, 16, 8, 2),
    (256, 128, 4, 1),
    (80, 32, 6, 2),
]
each_size = pytest.mark.parametrize("size", SIZES, ids=str)
each_device = pytest.mark.parametrize("device", DEVICES)


def case_of(size, rows, **more):
    head_dim, page_tokens, heads, kv_heads = size
    return cases.Case(
        name="wide", rows=rows, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim,
        page_tokens=page_tokens, **more,
    )  # fmt: skip


def bound(case, dtype=torch.float32, max_tokens=0):
    names = ("num_heads", "num_kv_heads", "head_dim", "page_tokens")
    geometry = {name: getattr(case, name) for name in names} | {"max_tokens": max_tokens}
    return BACKEND.bind(
        BindRequest(operation="paged_attention", device="cuda", dtype=dtype, geometry=geometry)
    )


def both(case, device, around=None, wide=0, dtype=torch.float32, max_tokens=0):
    """``(got, want, pools, pools)`` of one step by the kernels and by the definition.

    ``wide`` adds columns to the block table, as a longer context would.
    """
    found, ops = [], bound(case, dtype, max_tokens)
    for step in (ops.step, partial(reference.step, attend=reference.attend)):
        x = cases.lay(case, dtype=dtype)
        pages_BW = torch.nn.functional.pad(x.plan.pages_BW, (0, wide))
        plan = evolve(x.plan, pages_BW=pages_BW)
        there = {
            f: v.to(device) if isinstance(v, torch.Tensor) else v
            for f, v in ((a.name, getattr(plan, a.name)) for a in type(plan).__attrs_attrs__)
        }
        plan, pools = type(plan)(**there), (x.k_PpGD.to(device), x.v_PpGD.to(device))
        q, k, v = (t.to(device) for t in (x.q_TND, x.k_TGD, x.v_TGD))
        made = AttentionStep(scale=case.scale, causal=case.causal)
        if around is not None:
            made = around(case, x, made, device)
        found.append((step(q, k, v, pools, plan, made).cpu(), [pool.cpu() for pool in pools]))
    (got, mine), (want, theirs) = found
    return got[: x.num_real], want[: x.num_real], mine, theirs


def everything(case, x, step, device):
    """Norms, rope over a quarter of a head, and a gate."""
    D = case.head_dim
    at_T = (x.plan.before_B[x.plan.row_T.long()] + x.plan.col_T).long()
    gate = torch.sin(torch.arange(2 * x.q_TND.numel()).float()).view(*x.q_TND.shape[:2], -1)
    cos, sin = rope_angles(at_T, D // 4, 1e4)
    return evolve(
        step,
        gate_TND=gate.to(device, x.q_TND.dtype)[..., D:],
        q_norm_D=torch.linspace(0.5, 1.5, D, device=device),
        k_norm_D=torch.linspace(1.2, 0.8, D, device=device),
        rope=(cos.to(device), sin.to(device)),
    )


def assert_same(found, near=2e-5):
    got, want, mine, theirs = found
    torch.testing.assert_close(got, want, atol=near, rtol=near)
    for pool, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(pool[1:], other[1:], atol=near, rtol=near, equal_nan=True)


def test_keys_are_split_until_a_device_is_full_and_each_program_has_work():
    assert splits_for(rows=1, kv_heads=2, tokens=1 << 20, block=64) == 64
    assert splits_for(rows=16, kv_heads=2, tokens=1024, block=32) == 16
    assert splits_for(rows=64, kv_heads=2, tokens=1024, block=32) == 4
    assert splits_for(rows=128, kv_heads=2, tokens=1024, block=32) == 2
    assert splits_for(rows=512, kv_heads=2, tokens=1024, block=32) == 1
    assert splits_for(rows=256, kv_heads=2, tokens=32768, block=32) == 8
    assert splits_for(rows=1, kv_heads=2, tokens=16, block=64) == 1


def test_steps_of_all_counts_of_rows_need_few_kernels():
    """A step that is not captured would wait for a compiler at each new count."""
    found = {splits_for(rows=n, kv_heads=2, tokens=2304, block=64) for n in range(1, 257)}
    assert found == {1, 2, 4, 8, 16, 32, 36}


@each_device
@each_size
def test_a_decode_step_over_split_keys_is_the_definition(size, device):
    """Norms, rope, the new token's cell, poisoned cells behind every row, and the gate."""
    assert_same(both(case_of(size, LONG, decode=1, pad_rows=1), device, everything, wide=3))


@each_device
def test_more_parts_of_a_row_than_are_summed_at_once_are_all_summed(device):
    case = case_of((64, 16, 4, 2), ((1300, 1), (70, 1)), decode=1)
    assert splits_for(rows=2, kv_heads=2, tokens=2048, block=32) > AT_ONCE
    assert_same(both(case, device, everything, max_tokens=2048))


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_table_wider_than_its_rows_changes_no_bit(dtype, device):
    """A captured step has room for 512 tokens a row, an eager one for those that rows hold: 20
    pages, of which a case lays one more."""
    case = case_of((64, 16, 4, 2), ((299, 1), (318, 1), (70, 1), (0, 1)), decode=1)
    eager, captured = (
        both(case, device, everything, wide=wide, dtype=dtype, max_tokens=512)[0]
        for wide in (-1, 512 // 16 - 21)
    )
    assert torch.equal(eager, captured)


@each_device
@each_size
def test_a_chunk_behind_a_prefix_is_the_definition(size, device):
    rows = ((70, 37), (0, 5), (16, 0), (3, 1))
    found = both(case_of(size, rows, pad_rows=2, pad_tokens=3), device, everything)
    assert_same(found)


@each_device
def test_a_lead_is_decoded_over_split_keys_and_the_rest_is_not(device):
    case = case_of((64, 16, 8, 2), ((299, 1), (37, 1), (20, 9)), lead=2, pad_rows=1, pad_tokens=2)
    assert_same(both(case, device, everything, wide=100))


@each_device
def test_queries_and_gates_may_be_strided_and_pools_of_another_dtype(device):
    """The next decode step reads what a bf16 pool keeps of an fp32 key."""
    case = case_of((64, 16, 4, 2), ((40, 1), (3, 1)), decode=1)
    x = cases.lay(case)
    pools = [[p.to(device, torch.bfloat16) for p in (x.k_PpGD, x.v_PpGD)] for _ in range(2)]
    packed = torch.cat([x.q_TND, x.q_TND + 1], -1).to(device)
    q, gate = packed[..., :64], packed[..., 64:]
    k, v = x.k_TGD.to(device), x.v_TGD.to(device)
    plan = evolve(x.plan, **{
        n: getattr(x.plan, n).to(device) for n in ("pages_BW", "kv_lens_B", "before_B", "write_T")
    })  # fmt: skip
    step = AttentionStep(scale=case.scale, gate_TND=gate)
    got, want = (
        run(q, k, v, tuple(pool), plan, step).cpu()
        for run, pool in zip((bound(case).step, reference.step), pools, strict=True)
    )
    torch.testing.assert_close(got, want, atol=2e-2, rtol=2e-2)
    keys = (pool[0][1:].cpu().float() for pool in pools)
    torch.testing.assert_close(*keys, atol=0, rtol=1e-2, equal_nan=True)


@pytest.mark.gpu
def test_three_runs_are_equal_to_the_bit():
    case = case_of((256, 16, 8, 2), LONG, decode=1)
    runs = [both(case, "cuda", everything, wide=60, dtype=torch.bfloat16)[0] for _ in range(3)]
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


@pytest.mark.gpu
def test_programs_count_themselves_in_cells_that_are_zero_again():
    """The same operation after steps of other rows and splits."""
    ops, found = bound(case_of((256, 16, 8, 2), LONG), torch.bfloat16), []
    for rows in (LONG, ((40, 1),) * 9, LONG):
        x = cases.lay(case_of((256, 16, 8, 2), rows, decode=1), dtype=torch.bfloat16)
        plan = evolve(x.plan, **{
            name: getattr(x.plan, name).cuda()
            for name in ("pages_BW", "kv_lens_B", "before_B", "write_T")
        })  # fmt: skip
        q, k, v, *pools = (t.cuda() for t in (x.q_TND, x.k_TGD, x.v_TGD, x.k_PpGD, x.v_PpGD))
        step = AttentionStep(scale=0.1)
        found += [ops.step(q, k, v, tuple(pools), plan, step).cpu() for _ in range(3)]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[0], found[-1])


@pytest.mark.parametrize("backend", [BACKEND, RAGGED], ids=lambda backend: backend.operation)
def test_heads_wider_than_a_tile_are_refused(backend):
    geometry = {"num_heads": 2, "num_kv_heads": 2, "head_dim": 512, "page_tokens": 16}
    request = BindRequest(
        operation=backend.operation, device="cuda", dtype=torch.bfloat16, geometry=geometry
    )
    assert backend.supports(request).code == "head-dim"


@each_device
@pytest.mark.parametrize("causal", [True, False])
def test_rows_of_many_tiles_attend_to_themselves(causal, device):
    """As an encoder does: heads of 64, rows longer than a tile, no pool."""
    case = ragged.Case(
        name="tiles", rows=(150, 0, 67), num_heads=4, num_kv_heads=2, head_dim=64, causal=causal,
        pad_rows=1, pad_tokens=3,
    )  # fmt: skip
    x = ragged.lay(case)
    geometry = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64}
    ops = RAGGED.bind(
        BindRequest(
            operation="ragged_attention", device="cuda", dtype=torch.float32, geometry=geometry
        )
    )
    plan = evolve(x.plan, **{
        name: getattr(x.plan, name).to(device) for name in ("q_starts_B", "q_lens_B")
    })  # fmt: skip
    given = (t.to(device) for t in (x.q_TND, x.k_TGD, x.v_TGD))
    got = ops.attend(*given, plan, scale=case.scale, causal=causal)[: x.num_real].cpu()
    want = ragged_reference.attend(
        x.q_TND, x.k_TGD, x.v_TGD, x.plan, scale=case.scale, causal=causal
    )
    torch.testing.assert_close(got, want[: x.num_real], atol=2e-5, rtol=2e-5)
