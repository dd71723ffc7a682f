"""The field's definitions, by value."""

import pytest

from mstar_core.bench.stats import (
    Sample,
    alternated,
    figures,
    keeps,
    percentile,
    spread,
    summary,
    tpot_ms,
)


def sample(**more):
    """Due at 1 s, sent at 1.5 s, first text at 2 s, five tokens in four chunks until 4 s."""
    facts = {
        "due_s": 1.0,
        "sent_s": 1.5,
        "first_s": 2.0,
        "end_s": 4.0,
        "gaps_s": [0.5, 0.5, 1.0],
        "chunks": 4,
        "events": 7,
        "prompt_tokens": 10,
        "output_tokens": 5,
    }
    return Sample(**{**facts, **more})


def test_percentiles_are_linear_between_neighbours():
    values = [0.0, 10.0, 20.0, 30.0]
    assert [percentile(values, p) for p in (0, 0.5, 0.9, 1)] == pytest.approx([0, 15, 27, 30])
    assert percentile([7.0], 0.99) == 7.0


def test_a_summary_is_of_the_values_in_any_order_and_none_of_none():
    found = summary([3.0, 1.0, 2.0])
    assert (found.count, found.mean, found.median, found.max) == (3, 2.0, 2.0, 3.0)
    assert found.p90 == pytest.approx(2.8)
    assert summary([]) is None


def test_times_count_from_when_a_request_was_due_not_from_when_it_was_sent():
    """In an open loop a late request is slow, not absent: no coordinated omission."""
    found = figures([sample()])
    assert found.ttft_ms.mean == pytest.approx(1000)
    assert found.e2el_ms.mean == pytest.approx(3000)
    assert found.late_ms.mean == pytest.approx(500)
    assert found.duration_s == pytest.approx(3)


def test_time_per_token_is_what_follows_the_first_token_by_the_tokens_that_follow_it():
    assert tpot_ms(sample()) == pytest.approx(2000 / 4)
    assert tpot_ms(sample(output_tokens=1)) is None
    assert tpot_ms(sample(first_s=None)) is None


def test_gaps_are_those_of_chunks_and_chunks_say_how_many_tokens_they_hold():
    found = figures([sample(), sample(gaps_s=[0.2], chunks=1)])
    assert (found.itl_ms.count, found.itl_ms.max) == (4, 1000.0)
    assert found.tokens_per_chunk == 2.0


def test_rates_are_of_the_whole_run_and_of_requests_that_did_not_fail():
    failed = sample(error="429 overloaded", end_s=5.0, due_s=0.0, sent_s=0.0)
    found = figures([sample(), sample(), failed])
    assert (found.requests, found.failed, found.errors) == (3, 1, {"429 overloaded": 1})
    assert found.duration_s == 5.0
    assert found.requests_per_s == pytest.approx(2 / 5)
    assert found.output_tokens_per_s == pytest.approx(10 / 5)
    assert found.total_tokens_per_s == pytest.approx(30 / 5)
    assert (found.mean_prompt_tokens, found.mean_output_tokens) == (10, 5)
    assert found.e2el_ms.count == 2


def test_goodput_counts_the_requests_that_keep_every_promise():
    promises = {"ttft": 1000.0, "tpot": 499.0}
    assert not keeps(sample(), promises)
    assert keeps(sample(end_s=3.9), promises)
    assert keeps(sample(output_tokens=1), promises)
    assert figures([sample(), sample(end_s=3.9)], promises).goodput_per_s == pytest.approx(1 / 3)
    assert figures([sample()]).goodput_per_s is None


def test_sound_has_its_real_time_factor():
    found = figures([sample(audio_s=6.0, gaps_s=[], chunks=0)])
    assert found.rtf.mean == pytest.approx(0.5)
    assert found.audio_s_per_s == pytest.approx(2.0)
    assert found.tokens_per_chunk is None
    assert figures([sample()]).rtf is None


def test_nothing_has_no_figures():
    found = figures([])
    assert (found.requests, found.duration_s, found.requests_per_s) == (0, 0.0, 0.0)
    assert found.ttft_ms is None
    assert found.e2el_ms is None


def test_arms_take_turns_so_that_drift_cancels():
    assert alternated(5) == "ABBAABBAAB"
    found = spread([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
