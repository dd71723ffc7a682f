"""When an answer is drawn again, and when a window is silent."""

from __future__ import annotations

import pytest
from mstar_whisper.judging import (
    STEADY_DB,
    STILL_DB,
    Judged,
    Thresholds,
    chosen,
    compression_ratio,
    is_still,
)
from mstar_whisper.sound import Level

from mstar_core.errors import RequestError
from mstar_core.model.transcription import Answered


def judged(logprob=-0.2, text="some words", silence=0.1, spread_db=30.0):
    return Judged(
        logprobs=(),
        ended=True,
        ids=(1,),
        text=text,
        temperature=0.0,
        avg_logprob=logprob,
        compression_ratio=compression_ratio(text),
        no_speech_prob=silence,
        spread_db=spread_db,
    )


LOOP = "and then, " * 40


@pytest.mark.parametrize(
    ("answer", "doubtful", "silent"),
    [
        (judged(), False, False),
        (judged(logprob=-1.01), True, False),
        (judged(logprob=-1.0), False, False),
        (judged(text=LOOP), True, False),
        (judged(silence=0.95), False, False),
        (judged(silence=0.61, logprob=-1.01), False, True),
        (judged(silence=0.6, logprob=-1.01), True, False),
        (judged(silence=0.61, logprob=-1.01, text=LOOP), False, True),
        (judged(silence=0.31, spread_db=STEADY_DB - 0.1), False, True),
        (judged(silence=0.31, spread_db=STEADY_DB), False, False),
        (judged(silence=0.3, spread_db=0.0), False, False),
    ],
)
def test_the_thresholds_decide_what_is_drawn_again_and_what_is_silent(answer, doubtful, silent):
    """WH-05: no speech counts where the answer is unlikely too, or the sound never changes."""
    assert answer.is_doubtful(Thresholds()) == doubtful
    assert answer.is_silent(Thresholds()) == silent


def test_a_threshold_that_is_null_decides_nothing():
    free = Thresholds(
        compression_ratio_threshold=None, logprob_threshold=None, no_speech_threshold=None
    )
    worst = judged(logprob=-5.0, text=LOOP, silence=0.99)
    assert not worst.is_doubtful(free)
    assert not worst.is_silent(free)


def test_without_a_threshold_of_likelihood_no_speech_decides_alone():
    assert judged(silence=0.61).is_silent(Thresholds(logprob_threshold=None))


def test_the_published_thresholds_alone_know_nothing_of_loudness():
    published = Thresholds(skip_steady=False)
    assert not judged(silence=0.9, spread_db=0.0).is_silent(published)
    assert not is_still(Level(loudest_db=-200.0, spread_db=0.0), published)
    assert is_still(Level(loudest_db=STILL_DB - 0.1, spread_db=40.0), Thresholds())
    assert not is_still(Level(loudest_db=STILL_DB, spread_db=0.0), Thresholds())


def test_the_end_of_an_answer_counts_in_its_mean():
    answered = Answered(id="a", ids=[5, 6], logprobs=[-0.5, -1.0], stop_logprob=-3.0, reported={})
    of = Judged.of(answered, 0.4, 20.0, lambda ids: " two words")
    assert of.avg_logprob == -1.5
    assert (of.text, of.temperature, of.no_speech_prob) == ("two words", 0.4, 0.0)
    cut_off = Answered(id="a", ids=[5, 6], logprobs=[-0.5, -1.0])
    assert Judged.of(cut_off, 0.0, 20.0, lambda ids: "").avg_logprob == -0.75


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": ()},
        {"temperature": (0.0, "hot")},
        {"temperature": -0.1},
        {"temperature": True},
        {"logprob_threshold": 0.5},
        {"no_speech_threshold": 1.5},
        {"compression_ratio_threshold": "low"},
        {"skip_steady": 1},
    ],
)
def test_thresholds_of_another_kind_are_refused_by_name(given):
    with pytest.raises(RequestError) as caught:
        Thresholds(**given)
    assert caught.value.where == next(iter(given))


def test_one_temperature_is_the_only_one_that_is_tried():
    assert Thresholds(temperature=0.3).temperature == (0.3,)
    assert Thresholds().temperature == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def test_of_answers_that_are_all_doubtful_the_likeliest_is_taken_if_it_hardly_repeats_itself():
    """A loop is likely, and gives way; a sentence that was said twice does not."""
    at = Thresholds()
    loop, hot = judged(-0.05, LOOP), judged(-1.4, "a few words of any kind")
    twice = judged(-0.3, "it is the same sentence that is said here, again and again. " * 3)
    assert loop.compression_ratio > 5 > twice.compression_ratio > 2.4
    assert chosen([loop, hot], at) is hot
    assert chosen([twice, hot], at) is twice
    unmeasured = Thresholds(compression_ratio_threshold=None)
    assert chosen([loop, hot], unmeasured) is loop


def test_an_answer_that_is_believed_is_taken_as_it_is():
    first, last = judged(-0.9, LOOP), judged(-0.95)
    assert chosen([first, last], Thresholds()) is last
