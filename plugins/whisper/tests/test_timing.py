"""When words were said: the alignment, and what pauses do to it."""

from __future__ import annotations

import numpy as np
import pytest
from mstar_whisper.judging import Judged
from mstar_whisper.timing import timed
from mstar_whisper.window import Window


def judged(ids, begins, logprobs):
    return Judged(
        ids=tuple(ids),
        logprobs=tuple(logprobs),
        ended=True,
        text="",
        temperature=0.0,
        avg_logprob=0.0,
        compression_ratio=1.0,
        no_speech_prob=0.0,
        spread_db=50.0,
        begins=tuple(begins),
    )


def window(loud_F, first=0):
    return Window(first=first, num_frames=len(loud_F), course=iter([None]), loud_F=loud_F)


def told(tokens, text, heard, where):
    """The words of ``text``; ids from 100 on are timestamps."""

    def decode(ids):
        return "".join(tokens[i] for i in ids if i < 100)

    return [*timed(text, heard, where, decode, "en")]


def times(tokens, begins, loud_F):
    """Of tokens that are the whole answer; each begins at a position, and behind the last is one
    where it ends."""
    heard = judged(range(len(tokens)), begins, [0] * len(tokens))
    words = told(tokens, range(len(tokens)), heard, window(loud_F))
    return [(word.text, word.start, word.end) for word in words]


def loud(*pauses, frames=200):
    """Frames that are loud, but for ``pauses``."""
    loud_F = np.ones(frames, bool)
    for first, end in pauses:
        loud_F[first:end] = False
    return loud_F


def test_a_word_lasts_from_its_first_token_to_the_next_word():
    """Its probability is the geometric mean over its tokens."""
    ids = [100, 0, 1, 2, 3, 120]
    heard = judged(ids, [0, 5, 20, 30, 40, 50, 90], [-9, -0.1, -0.2, -0.4, -3, -9])
    where = window(loud(frames=300), first=1000)
    words = told((" Good", " mor", "ning", "."), [1, 2, 3, 4], heard, where)
    found = [(word.text, word.start, word.end) for word in words]
    assert found == [(" Good", 10.1, 10.4), (" morning.", 10.4, 10.8)]
    assert words[0].probability == pytest.approx(0.9048, abs=1e-4)
    assert words[1].probability == pytest.approx(0.7408, abs=1e-4)


def test_a_word_reaches_into_no_pause_and_not_behind_the_windows_end():
    """Here: a pause before the first, within the second, all over the third; the fourth is cut."""
    still = loud((0, 20), (60, 70), (100, 140))
    assert times((" a", " b", " c", " d"), (0, 20, 50, 70, 150), still) == [
        (" a", 0.2, 0.4),
        (" b", 0.4, 1.0),
        (" c", 1.0, 1.4),
        (" d", 1.4, 2.0),
    ]


@pytest.mark.parametrize(("still", "end", "begin"), [(15, 0.6, 0.75), (14, 0.9, 0.4)])
def test_a_word_ends_before_a_pause_in_it_and_a_sentence_begins_behind(still, end, begin):
    """Of 0.15 s; a shorter one is a part of the word."""
    pause = loud((60, 60 + still))
    found = times((" a", " b", " c"), (0, 20, 45, 60), pause)
    assert found[1:] == [(" b", 0.4, end), (" c", 0.9, 1.2)]
    found = times((" a.", " B", " c"), (0, 20, 45, 60), pause)
    assert found[1:] == [(" B", begin, 0.9), (" c", 0.9, 1.2)]


def test_a_first_word_lies_not_in_the_beginning_of_the_next():
    found = times((" a.", " B", " c"), (0, 20, 45, 60), loud((60, 85)))
    assert found[1:] == [(" B", 0.4, 0.6), (" c", 0.9, 1.2)]


def test_a_short_first_word_begins_with_the_sound_but_lasts_no_longer_than_others():
    """Where a pause lies in front."""
    begins, words = (0, 20, 30, 32, 42, 52), (" a", ".", " B", " c", " d")
    assert times(words, begins, loud((35, 55)))[1] == (" B", 0.55, 0.64)
    assert times(words, begins, loud((20, 42)))[1] == (" B", 0.44, 0.64)
    assert times(words, begins, loud((20, 42), (57, 61)))[1] == (" B", 0.44, 0.64)
    assert times(words, begins, loud((20, 42), (50, 57)))[1] == (" B", 0.57, 0.64)
    assert times(words, begins, loud())[1] == (" B", 0.6, 0.64)


def test_a_first_word_takes_no_sound_of_what_was_said_before():
    """In front of it a mark and two timestamps: the mark begins where that ends."""
    ids = [0, 1, 100, 100, 2, 3, 100]
    heard = judged(ids, [0, 28, 29, 29, 30, 32, 47, 60], [0] * 7)
    words = told((" a", ".", " B", " c"), [4, 5], heard, window(loud((20, 54))))
    assert (words[0].start, words[0].end) == (0.56, 0.64)
