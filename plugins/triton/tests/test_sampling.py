"""Greedy rows over a vocabulary of several blocks, against the definition."""

import pytest
import torch
from attrs import evolve, fields

from mstar_core.ops.backend import BindRequest
from mstar_core.ops.cases import normal, seeded
from mstar_core.ops.sampling import cases, reference
from mstar_triton.sampling.backend import BACKEND

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
each_device = pytest.mark.parametrize("device", DEVICES)
V = 9001

# An infinite logit gives NaN where it is subtracted from itself, on a GPU without a word.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


@pytest.fixture
def ops():
    return BACKEND.bind(
        BindRequest(
            operation="sampling",
            device="cuda",
            dtype=torch.bfloat16,
            geometry={"vocab_size": V},
        )
    )


@pytest.fixture
def logits():
    """Rows of which one ends in its largest, one has two, one an infinity, one is masked."""
    x = normal(seeded("spans"), 5, V + 7)[:, :V] * 3
    x[0, V - 1] = 40.0
    x[1, 4100] = x[1, 77] = 30.0
    x[2, 5000] = float("inf")
    x[3] = float("-inf")
    x[4, 3000:] = float("-inf")
    return x


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_likeliest_id_is_found_across_blocks(ops, logits, dtype, device):
    x = logits.to(dtype)
    plan = cases.plan_of([cases.RowSettings(temperature=0.0)] * 5, sampled=0)
    got, want = ops.sample(x.to(device), plan), reference.sample(x, plan)
    assert got.ids_B.tolist() == want.ids_B.tolist()
    assert got.ids_B.tolist()[:3] == [V - 1, 77, 5000]
    assert got.finite_B.tolist() == [True, True, False, False, False]
    real = [0, 1, 3, 4]
    torch.testing.assert_close(
        got.logprob_B.cpu()[real], want.logprob_B[real], atol=1e-4, rtol=1e-4
    )


@each_device
def test_what_was_found_of_the_raw_logits_is_passed_on(ops, logits, device):
    plan = cases.plan_of([cases.RowSettings(temperature=0.0)] * 5, sampled=0)
    told = torch.tensor([False, True, False, True, False], device=device)
    assert torch.equal(ops.sample(logits.to(device), plan, finite_B=told).finite_B, told)


@each_device
def test_filters_are_exact_across_blocks(ops, device):
    """Rows whose logits are bf16, so that many are equal where top-k and top-p end.

    Settings are columns of a table, as a resident step hands them over.
    """
    g = seeded("filters")
    x = (normal(g, 8, V) * 2).to(torch.bfloat16)
    settings = [
        cases.RowSettings(top_k=40, top_p=0.9, seed=1),
        cases.RowSettings(top_k=3000, seed=2),
        cases.RowSettings(top_p=0.3, seed=3),
        cases.RowSettings(min_p=0.3, temperature=1.5, seed=4),
        cases.RowSettings(temperature=0.0),
        cases.RowSettings(top_k=1, seed=5),
        cases.RowSettings(top_k=20, top_p=0.8, min_p=0.05, temperature=0.6, seed=6),
        cases.RowSettings(seed=7),
    ]
    plan = cases.plan_of(settings)
    there = evolve(plan, **{
        a.name: getattr(plan, a.name).to(device)[:, None].repeat(1, 3)[:, 0]
        for a in fields(type(plan))
        if isinstance(getattr(plan, a.name), torch.Tensor)
    })  # fmt: skip
    for draw in range(2):
        got, want = ops.sample(x.to(device), there, draw=draw), reference.sample(x, plan, draw=draw)
        assert got.ids_B.tolist() == want.ids_B.tolist()
        torch.testing.assert_close(got.logprob_B.cpu(), want.logprob_B, atol=1e-4, rtol=1e-4)


@each_device
@pytest.mark.parametrize("sampled", [0, 1])
def test_what_the_host_reads_of_rows_lies_end_to_end(ops, logits, sampled, device):
    plan = cases.plan_of([cases.RowSettings(temperature=0.0)] * 5, sampled=sampled)
    there = evolve(plan, **{
        a.name: getattr(plan, a.name).to(device)
        for a in fields(type(plan))
        if isinstance(getattr(plan, a.name), torch.Tensor)
    })  # fmt: skip
    got = ops.sample(logits.to(device), there)
    at = 0
    for told in (got.ids_B, got.logprob_B, got.finite_B):
        assert told.storage_offset() * told.element_size() == at
        assert told.untyped_storage().data_ptr() == got.ids_B.untyped_storage().data_ptr()
        at += told.nbytes
