"""What a row samples: cold temperatures, clamped filters, biases, penalties."""

import pytest
import torch
from attrs import evolve

from mstar_core.ops.sampling import PenaltyRows, penalty_cases, reference
from mstar_core.ops.sampling.cases import RowSettings, plan_of


def sample(logits, *rows, **options):
    return reference.sample(logits, plan_of(rows), **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("top_p", [1.0, 1e-4])
def test_cold_rows_are_greedy(dtype, top_p):
    """SM-02."""
    logits = (torch.randn(6, 300, generator=torch.Generator().manual_seed(0)) * 30).to(dtype)
    cold = (1e-3, 1e-4, 1e-5, 1e-6, 1e-30, 0.0)
    got = sample(logits, *(RowSettings(temperature=t, top_p=top_p) for t in cold))
    assert got.ids_B.tolist() == logits.argmax(-1).tolist()
    assert got.logprob_B.isfinite().all()


def test_top_k_is_off_at_zero_and_clamps_above_the_vocabulary():
    """SM-05: in one batch with others."""
    logits = torch.zeros(1, 8).expand(400, -1)
    for k, kept in ((-1, 8), (0, 8), (1, 1), (3, 3), (8, 8), (9, 8), (9_999_999, 8)):
        rows = [RowSettings(top_k=k if s % 2 else 2, seed=s) for s in range(400)]
        ids = sample(logits, *rows).ids_B
        assert set(ids[1::2].tolist()) == set(range(kept))
        assert set(ids[::2].tolist()) == {0, 1}


def test_the_largest_bias_always_wins_and_the_smallest_never():
    """SM-07."""
    logits = torch.randn(200, 20, generator=torch.Generator().manual_seed(1))
    rows = PenaltyRows(
        prompt_RV=torch.zeros(2, 20, dtype=torch.bool),
        count_RV=torch.zeros(2, 20, dtype=torch.int32),
        bias_RV=torch.zeros(2, 20),
    )
    plan = penalty_cases.lay().plan
    plan = evolve(
        plan,
        penalty_row_B=torch.ones(200, dtype=torch.int64),
        **{f"{name}_B": torch.full((200,), v) for name, v in _off.items()},
    )
    settings = [RowSettings(temperature=1.5, seed=s) for s in range(200)]
    rows.bias_RV[1, 4] = 100.0
    assert sample(reference.penalise(logits, rows, plan), *settings).ids_B.tolist() == [4] * 200
    rows.bias_RV[1, 4] = -100.0
    assert 4 not in sample(reference.penalise(logits, rows, plan), *settings).ids_B.tolist()


_off = {"repetition": 1.0, "presence": 0.0, "frequency": 0.0}


def test_a_frequency_penalty_reaches_the_next_token():
    """SM-11: the id just sampled is counted before the next one is chosen."""
    logits = torch.tensor([[0.2, 0.1, 0.2, 0.6, 0.1]]).log()
    rows = PenaltyRows(
        prompt_RV=torch.zeros(2, 5, dtype=torch.bool),
        count_RV=torch.zeros(2, 5, dtype=torch.int32),
        bias_RV=torch.zeros(2, 5),
    )
    plan = evolve(
        penalty_cases.lay().plan,
        penalty_row_B=torch.tensor([1]),
        **{f"{name}_B": torch.tensor([v]) for name, v in (_off | {"frequency": 2.0}).items()},
    )
    chosen = []
    for _ in range(4):
        ids = reference.penalise(logits, rows, plan).argmax(-1)
        reference.count(rows, plan, ids)
        chosen += ids.tolist()
    assert chosen == [3, 0, 2, 1]


def test_min_p_is_a_share_of_the_likeliest():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().expand(500, -1)
    ids = sample(logits, *(RowSettings(min_p=0.29, seed=s) for s in range(500))).ids_B
    assert set(ids.tolist()) == {0, 1, 2}


def test_top_p_keeps_the_id_that_crosses_it():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().expand(500, -1)
    for p, kept in ((0.45, 1), (0.55, 2), (0.79, 2), (0.85, 3), (0.96, 4)):
        ids = sample(logits, *(RowSettings(top_p=p, seed=s) for s in range(500))).ids_B
        assert set(ids.tolist()) == set(range(kept))


def test_top_p_measures_what_top_k_left():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log().expand(500, -1)
    rows = [RowSettings(top_k=2, top_p=0.57, seed=s) for s in range(500)]
    assert set(sample(logits, *rows).ids_B.tolist()) == {0}


def test_whether_raw_logits_were_finite_is_passed_through():
    logits = torch.zeros(2, 4)
    logits[0, 1] = float("-inf")
    finite = torch.tensor([True, False])
    row = RowSettings()
    assert sample(logits, row, row, finite_B=finite).finite_B is finite
    assert sample(logits, row, row).finite_B.tolist() == [False, True]
