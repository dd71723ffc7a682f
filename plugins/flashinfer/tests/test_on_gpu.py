"""The library itself: cases with heads as wide as its kernels, on a GPU."""

from importlib.util import find_spec

import pytest
import torch
from attrs import evolve

from mstar_core.ops.backend import BindRequest
from mstar_core.ops.gated_delta import cases as gdn_cases
from mstar_core.ops.gated_delta.recurrence import oracle as recurrence
from mstar_core.ops.paged_attention import cases as paged_cases
from mstar_core.ops.sampling import cases as sampling_cases
from mstar_core.testing.ops.base import assert_near, mapped, planned
from mstar_core.testing.ops.gated_delta_forms import k_last
from mstar_flashinfer.attention.paged import FA2, FA3
from mstar_flashinfer.gated_delta import BACKEND as GATED_DELTA
from mstar_flashinfer.sampling import BACKEND as SAMPLING

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),  # noqa: TID251
    pytest.mark.skipif(find_spec("flashinfer") is None, reason="FlashInfer is not installed"),
]
HEADS = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 256, "page_tokens": 64}
DELTA = {"num_k_heads": 2, "num_v_heads": 4, "k_dim": 128, "v_dim": 128}
WIDE = [evolve(case, **HEADS) for case in paged_cases.CASES]
DELTAS = [evolve(case, **DELTA) for case in gdn_cases.CASES]
BF16 = torch.bfloat16


def there(inputs):
    return mapped(inputs, lambda x: x.to("cuda", copy=True))


def bound(backend, geometry, dtype=BF16):
    request = BindRequest(
        operation=backend.operation, device="cuda", dtype=dtype, geometry=geometry
    )
    refusal = backend.available("cuda") or backend.supports(request)
    if refusal is not None:
        pytest.skip(str(refusal))
    return backend.bind(request)


def attended(ops, case, x):
    ops.write(x.k_TGD, x.v_TGD, x.k_PpGD, x.v_PpGD, x.plan.write_T)
    plan = planned(ops, x.plan)
    o = ops.attend(x.q_TND, x.k_PpGD, x.v_PpGD, plan, scale=case.scale, causal=case.causal)
    assert o.isfinite().all()
    return o[: x.num_real]


@pytest.mark.parametrize("backend", [FA2, FA3], ids=lambda backend: backend.name)
@pytest.mark.parametrize("case", WIDE, ids=str)
def test_planned_kernels_attend(backend, case):
    x = there(paged_cases.lay(case, dtype=BF16))
    got = attended(bound(backend, HEADS), case, x)
    assert_near(got, paged_cases.oracle(case, BF16), 2e-2)


@pytest.mark.parametrize("case", [case for case in WIDE if case.decode], ids=str)
def test_xqa_attends_without_a_plan(case):
    x, ops = there(paged_cases.lay(case, dtype=BF16)), bound(FA2, HEADS)
    assert_near(attended(evolve(ops, schedule=None), case, x), paged_cases.oracle(case, BF16), 2e-2)


@pytest.mark.parametrize("case", DELTAS, ids=str)
def test_the_delta_rule_is_the_recurrence(case):
    ops = bound(GATED_DELTA, DELTA | {"conv_taps": 4, "activation": "silu"})
    x, want = there(gdn_cases.lay(case, dtype=BF16)), recurrence(case, BF16)
    got = k_last(ops)(x.qkv_TC, x.z_TV, x.b_TH, x.a_TH, x.weights, x.pools, x.plan)
    assert got.isfinite().all()
    assert_near(got[: x.num_real], torch.cat([o for o, _, _ in want]), 6e-2)
    for slot, (_, _, state), (span, _) in zip(x.slots.tolist(), want, case.rows, strict=True):
        if span:
            assert_near(x.pools.ssm_SHDE[slot], state, 6e-2)


def test_gates_of_one_row_may_lie_at_any_address():
    """Those of a projection's end do, where a model has few heads."""
    decode = next(case for case in DELTAS if case.decode)
    case = evolve(decode, rows=((1, False),))
    ops = bound(GATED_DELTA, DELTA | {"conv_taps": 4, "activation": "silu"})
    x, (want,) = there(gdn_cases.lay(case, dtype=BF16)), recurrence(case, BF16)
    b_TH, a_TH = torch.cat([x.b_TH[:, :1], x.b_TH, x.a_TH], 1)[:, 1:].chunk(2, 1)
    assert b_TH.data_ptr() % 16 == 2
    got = k_last(ops)(x.qkv_TC, x.z_TV, b_TH, a_TH, x.weights, x.pools, x.plan)
    assert_near(got[:1], want[0], 6e-2)
    assert_near(x.pools.ssm_SHDE[x.slots[0]], want[2], 6e-2)


@pytest.mark.parametrize("case", sampling_cases.CASES, ids=str)
def test_sampling_is_the_contracts(case):
    x = sampling_cases.lay(case)
    ops, y = bound(SAMPLING, {"vocab_size": case.vocab}), there(x)
    rows = zip(x.logits_BV.numpy(), case.rows, strict=True)
    want = [sampling_cases.oracle_id(*row, case.draw) for row in rows]
    assert ops.sample(y.logits_BV, y.plan, draw=x.draw).ids_B.tolist() == want
