"""Sampling settings refuse what cannot be used, by name."""

import math

import numpy as np
import pytest

from mstar_core.config.sampling import MAX_BIASES, SamplingSettings
from mstar_core.errors import RequestError

REFUSED = [
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", -0.1),
    ("temperature", 101),
    ("temperature", "hot"),
    ("temperature", True),
    ("temperature", None),
    ("top_p", 0),
    ("top_p", 1.5),
    ("top_p", math.inf),
    ("top_k", -2),
    ("top_k", 0.01),
    ("top_k", 1.0),
    ("top_k", True),
    ("top_k", "5"),
    ("top_k", 1 << 63),
    ("min_p", -1),
    ("min_p", 1.1),
    ("repetition_penalty", 0),
    ("repetition_penalty", 1e-320),
    ("repetition_penalty", 0.009),
    ("repetition_penalty", 10.1),
    ("presence_penalty", 1e9),
    ("presence_penalty", -2.1),
    ("frequency_penalty", math.nan),
    ("seed", 100000000000000000000),
    ("seed", -9223372036854775809),
    ("seed", 1.5),
    ("seed", "7"),
    ("seed", True),
    ("logprobs", 21),
    ("logprobs", -1),
    ("logprobs", True),
    ("logit_bias", [1]),
    ("logit_bias", {"5": 1}),
    ("logit_bias", {-1: 5}),
    ("logit_bias", {True: 5}),
    ("logit_bias", {5: 1e300}),
    ("logit_bias", {5: "NaN"}),
    ("logit_bias", {5: math.nan}),
    ("logit_bias", {5: True}),
    ("logit_bias", dict.fromkeys(range(MAX_BIASES + 1), 1.0)),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=lambda x: str(x)[:24])
def test_a_value_that_cannot_be_used_is_refused_by_its_name(name, value):
    """SM-03, SM-04, SM-05, SM-06, SM-07 at the core's own door."""
    with pytest.raises(RequestError) as caught:
        SamplingSettings(**{name: value})
    assert caught.value.where.split("[")[0] == name
    assert caught.value.want
    assert caught.value.fix


def test_numbers_of_numpy_are_taken_as_plain_numbers():
    given = SamplingSettings(
        temperature=np.float32(0.5), top_k=np.int64(3), seed=np.int32(7), logprobs=np.uint8(2)
    )
    assert given == SamplingSettings(temperature=0.5, top_k=3, seed=7, logprobs=2)
    assert type(given.seed) is int
    biased = SamplingSettings(logit_bias={np.int64(5): np.float32(0.5)})
    assert biased == SamplingSettings(logit_bias={5: 0.5})


@pytest.mark.parametrize("seed", [None, 0, 9223372036854775807, -9223372036854775808])
def test_every_seed_of_64_bits_is_taken(seed):
    """SM-04: null, 0 and the ends of the range."""
    assert SamplingSettings(seed=seed).seed == seed


@pytest.mark.parametrize("k", [-1, 0, 1, 10**9])
def test_any_whole_top_k_is_taken(k):
    """SM-05: off is 0 or -1; more than the vocabulary is clamped later."""
    assert SamplingSettings(top_k=k).top_k == k


@pytest.mark.parametrize(
    ("temperature", "greedy"), [(0, True), (1e-30, True), (1e-6, True), (1e-5, False), (1, False)]
)
def test_a_tiny_temperature_is_greedy(temperature, greedy):
    """SM-02."""
    assert SamplingSettings(temperature=temperature).is_greedy is greedy


def test_only_penalties_and_biases_need_a_row():
    assert not SamplingSettings(temperature=1.0, top_k=5, logprobs=3, seed=1).needs_row
    assert not SamplingSettings(repetition_penalty=1, presence_penalty=0).needs_row
    assert SamplingSettings(repetition_penalty=1.1).needs_row
    assert SamplingSettings(presence_penalty=-0.5).needs_row
    assert SamplingSettings(frequency_penalty=0.5).needs_row
    assert SamplingSettings(logit_bias={0: 0.0}).needs_row
