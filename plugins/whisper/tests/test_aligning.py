"""Where tokens begin, beside the published way on the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mstar_whisper.aligning import first_positions, smoothed


def reference_firsts(cost_MS):
    """The published way through the matrix: the first position of each token."""
    from transformers.models.whisper import generation_whisper as published

    tokens, positions = published._dynamic_time_warping(cost_MS.double().numpy())
    jumps = np.pad(np.diff(tokens), (1, 0), constant_values=1).astype(bool)
    return positions[jumps].tolist()


def reference_smoothed(weights_nMS, width):
    from transformers.models.whisper.generation_whisper import _median_filter

    std, mean = torch.std_mean(weights_nMS, dim=1, keepdim=True, unbiased=False)
    return _median_filter(((weights_nMS - mean) / std)[None], width)[0]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(6))
def test_each_token_begins_where_the_published_way_meets_it(seed):
    """Rows of different lengths beside each other, over sounds of different lengths."""
    cost_BMS = draw(3, 9, 40, seed=seed).double()
    tokens, positions = [9, 4, 1], [40, 33, 7]
    first_BM = first_positions(cost_BMS, torch.tensor(tokens), torch.tensor(positions))
    for row, (m, s) in enumerate(zip(tokens, positions, strict=True)):
        want = reference_firsts(cost_BMS[row, :m, :s])
        assert first_BM[row].tolist() == [*want, *[-1] * (9 - m)]


def test_of_ways_that_cost_the_same_it_takes_the_published_one():
    cost_BMS = torch.zeros(1, 5, 12, dtype=torch.float64)
    first_BM = first_positions(cost_BMS, torch.tensor([5]), torch.tensor([12]))
    assert first_BM[0].tolist() == reference_firsts(cost_BMS[0])


def test_more_tokens_than_positions_share_them():
    cost_BMS = draw(1, 7, 3).double()
    first_BM = first_positions(cost_BMS, torch.tensor([7]), torch.tensor([3]))
    assert first_BM[0].tolist() == reference_firsts(cost_BMS[0])
    assert first_BM[0].tolist() == sorted(first_BM[0].tolist())


@pytest.mark.parametrize("width", [1, 3, 7])
def test_weights_are_smoothed_as_the_published_filter_does(width):
    """And only over what is sound and text: what lies behind counts for nothing."""
    weights_nMS = draw(2, 6, 30).softmax(-1)
    ours = smoothed(weights_nMS, torch.tensor(5), torch.tensor(22), width)
    want = reference_smoothed(weights_nMS[:, :5, :22], width)
    assert torch.allclose(ours[:, :5, :22], want, atol=1e-5)


def test_a_single_token_has_weights_without_a_spread_and_stays_finite():
    ours = smoothed(draw(2, 1, 10).softmax(-1), torch.tensor(1), torch.tensor(10), 7)
    assert ours.abs().sum() == 0
