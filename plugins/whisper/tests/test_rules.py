"""The timestamp grammar against a slow statement of it, and as transformers applies it."""

from __future__ import annotations

import pytest
import torch
from mstar_whisper.rules import TimestampRule

from mstar_core.resources.sampler.rules import RuleContext

VOCAB, EOT, NO_STAMPS, BEGIN, MAX_INITIAL = 40, 20, 24, 25, 4
NINF = float("-inf")


@pytest.fixture
def rule():
    made = TimestampRule(begin=BEGIN, eot=EOT, no_timestamps=NO_STAMPS, max_initial=MAX_INITIAL)
    made.build(VOCAB, lambda name, length, dtype: torch.zeros(length, dtype=dtype))
    return made


def start(rule, rows):
    return {
        name: torch.full((rows, *shape), fill, dtype=dtype)
        for name, (shape, dtype, fill) in rule.state.items()
    }


def context(count, rows):
    return RuleContext(
        generated_B=torch.full((rows,), count, dtype=torch.int32),
        fresh_B=torch.full((rows,), count == 0),
        enabled_B=torch.ones(rows, dtype=torch.bool),
    )


def slow(logits, generated):
    """One row, from all that was generated."""
    row = logits.clone()
    row[NO_STAMPS] = NINF
    last = bool(generated) and generated[-1] >= BEGIN
    before = len(generated) < 2 or generated[-2] >= BEGIN
    if last and before:
        row[BEGIN:] = NINF
    elif last:
        row[:EOT] = NINF
    stamps = [i for i in generated if i >= BEGIN]
    if stamps:
        row[BEGIN : stamps[-1] if last and not before else stamps[-1] + 1] = NINF
    if not generated:
        row[:BEGIN] = NINF
        row[BEGIN + MAX_INITIAL + 1 :] = NINF
    share = row.log_softmax(-1)
    if share[BEGIN:].logsumexp(-1) > share[:BEGIN].max():
        row[:BEGIN] = NINF
    return row


@pytest.mark.parametrize("seed", range(8))
def test_device_state_rules_as_the_whole_history_does(rule, seed):
    draw = torch.Generator().manual_seed(seed)
    rows = 6
    state, history = start(rule, rows), [[] for _ in range(rows)]
    for count in range(14):
        logits = torch.randn(rows, VOCAB, generator=draw) * 3
        got = rule.apply(logits, state, context(count, rows))
        want = torch.stack([slow(logits[i], history[i]) for i in range(rows)])
        assert torch.equal(got, want)
        ids = torch.multinomial(got.softmax(-1), 1, generator=draw)[:, 0]
        state = rule.update(state, ids, context(count, rows))
        for row, token in zip(history, ids.tolist(), strict=True):
            row.append(token)
    assert any(token >= BEGIN for row in history for token in row)


def allowed(rule, generated, logits=None):
    state = start(rule, 1)
    for count, token in enumerate(generated):
        state = rule.update(state, torch.tensor([token]), context(count, 1))
    flat = torch.zeros(1, VOCAB) if logits is None else logits
    ruled = rule.apply(flat, state, context(len(generated), 1))[0]
    return set(torch.isfinite(ruled).nonzero()[:, 0].tolist())


def test_a_transcript_begins_with_an_early_timestamp(rule):
    assert allowed(rule, []) == set(range(BEGIN, BEGIN + MAX_INITIAL + 1))


def test_text_follows_an_opening_timestamp(rule):
    assert allowed(rule, [BEGIN]) == set(range(BEGIN)) - {NO_STAMPS}


def test_a_closing_timestamp_is_followed_by_one_as_late_or_the_end(rule):
    logits = torch.zeros(1, VOCAB)
    logits[0, EOT] = 9.0
    found = allowed(rule, [BEGIN, 3, BEGIN + 5], logits)
    assert found == set(range(EOT, BEGIN)) - {NO_STAMPS} | set(range(BEGIN + 5, VOCAB))


def test_after_a_pair_no_timestamp_is_written(rule):
    assert not any(i >= BEGIN for i in allowed(rule, [BEGIN, 3, BEGIN + 5, BEGIN + 5]))


def test_time_never_runs_back(rule):
    logits = torch.zeros(1, VOCAB)
    logits[0, 7] = 9.0
    found = allowed(rule, [BEGIN, 3, BEGIN + 5, BEGIN + 5, 4], logits)
    assert {i for i in found if i >= BEGIN} == set(range(BEGIN + 6, VOCAB))


def test_likely_timestamps_together_win_over_the_likeliest_text(rule):
    logits = torch.zeros(1, VOCAB)
    logits[0, 7] = 2.0  # fifteen timestamps weigh ln 15 = 2.7
    assert allowed(rule, [BEGIN, 3], logits) == set(range(BEGIN + 1, VOCAB))
    logits[0, 7] = 3.0
    assert 7 in allowed(rule, [BEGIN, 3], logits)
