"""Stretches of speech between the timestamps of an answer."""

from __future__ import annotations

import pytest
from mstar_whisper.config import Tokens
from mstar_whisper.segments import segments_of

TOKENS = Tokens(
    eot=100,
    sot=101,
    previous=102,
    no_timestamps=110,
    languages={},
    tasks={},
    suppress=(),
    begin_suppress=(),
    max_initial_timestamp=None,
)
ZERO = TOKENS.timestamp_begin


def at(seconds):
    return ZERO + round(seconds * 50)


def found(ids, seconds=5.0):
    def decode(some):
        return "".join(chr(97 + i) for i in some)

    return [
        (one.start, one.end, one.text, one.first, one.ids)
        for one in segments_of(ids, seconds, TOKENS, decode)
    ]


def test_each_pair_of_timestamps_is_a_segment():
    ids = [at(0), 0, 1, at(1.2), at(1.5), 2, at(2.84)]
    assert found(ids) == [(0, 1.2, "ab", 1, (0, 1)), (1.5, 2.84, "c", 5, (2,))]


def test_text_without_a_timestamp_before_it_begins_where_the_last_one_ended():
    assert found([at(0.4), 0, at(1), 1, at(2)]) == [
        (0.4, 1, "a", 1, (0,)),
        (1, 2, "b", 3, (1,)),
    ]


def test_text_that_nothing_closes_lasts_to_the_end_of_the_sound():
    assert found([at(0.5), 0, 1]) == [(0.5, 5.0, "ab", 1, (0, 1))]
    assert found([0, 1]) == [(0.0, 5.0, "ab", 0, (0, 1))]


def test_times_beyond_the_sound_are_its_end():
    """A window is filled up with silence, which the model may count in."""
    assert found([at(0), 0, at(29)], seconds=3.21) == [(0.0, 3.21, "a", 1, (0,))]
    assert found([at(8), 0, at(9)], seconds=3.21) == [(3.21, 3.21, "a", 1, (0,))]


@pytest.mark.parametrize("ids", [[], [at(0), at(3)], [101, 105, 110]])
def test_timestamps_without_text_are_no_segment(ids):
    assert found(ids) == []


def test_ids_that_steer_the_decoder_are_no_text():
    assert found([at(0), 0, 103, 1, at(1)]) == [(0.0, 1.0, "ab", 1, (0, 1))]
