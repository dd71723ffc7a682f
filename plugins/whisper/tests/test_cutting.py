"""The published rule: pieces of an answer, and where the next window begins."""

from __future__ import annotations

import pytest
from mstar_whisper.config import Tokens
from mstar_whisper.cutting import cut

WINDOW = 3000
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


def at(seconds):
    return TOKENS.timestamp_begin + round(seconds * 50)


def found(ids, num_frames=WINDOW, **how):
    result = cut(ids, num_frames, TOKENS, **how)
    return [(p.start / 50, p.end / 50, p.ids) for p in result.pieces], result.advance


def test_what_follows_the_last_pair_is_heard_again_from_there():
    ids = [at(0), 1, 2, at(1.2), at(1.5), 3, at(2.84), at(2.84), 4, 5]
    assert found(ids) == (
        [(0, 1.2, tuple(ids[:4])), (1.5, 2.84, tuple(ids[4:7]))],
        284,
    )


def test_behind_a_single_last_timestamp_nothing_was_said():
    ids = [at(0), 1, at(1), at(1), 2, at(3)]
    pieces, advance = found(ids)
    assert [p[:2] for p in pieces] == [(0, 1), (1, 3)]
    assert advance == WINDOW


def test_without_a_pair_there_is_one_piece_to_the_last_timestamp():
    assert found([at(0), 1, 2, at(5)]) == ([(0, 5, (at(0), 1, 2, at(5)))], WINDOW)


@pytest.mark.parametrize("ids", [[at(0), 1], [1, 2], [at(0)]])
def test_without_a_timestamp_that_says_anything_it_lasts_to_the_end_of_the_window(ids):
    assert found(ids, 1210) == ([(0, 12.1, tuple(ids))], 1210)


def test_the_next_window_always_begins_later():
    """Timestamps that a broken model might write do not hold the plan up."""
    assert found([at(0), at(0), 1])[1] == 2


def test_text_that_nothing_closes_is_kept_where_nothing_is_heard_again():
    """WH-02: no words are lost at a cut."""
    ids = [at(0), 1, at(1), at(1), 2, 3]
    pieces, advance = found(ids, 2400, whole=True)
    assert pieces == [(0, 1, (at(0), 1, at(1))), (1, 24, (at(1), 2, 3))]
    assert advance == 2400


def test_later_windows_are_told_what_was_kept_and_its_timestamps():
    result = cut([at(0), 1, at(1), at(1), 2, at(2), at(2), 3], WINDOW, TOKENS)
    assert result.said == (at(0), 1, at(1), at(1), 2, at(2))
