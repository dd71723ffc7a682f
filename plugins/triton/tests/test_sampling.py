"""Greedy rows over a vocabulary of several spans, against the definition."""

import pytest
import torch

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
def test_the_likeliest_id_is_found_across_spans(ops, logits, dtype, device):
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
