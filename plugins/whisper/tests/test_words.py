"""Tokens to words: spaces, characters in several tokens, punctuation."""

from __future__ import annotations

import pytest
from mstar_whisper.cutting import Piece
from mstar_whisper.judging import Judged
from mstar_whisper.words import timed_words, words_of

EURO = "€".encode()


def decoder(*tokens):
    """Decodes ids as the tokens, texts or bytes, that they number."""
    data = [t if isinstance(t, bytes) else t.encode() for t in tokens]
    return lambda ids: b"".join(data[i] for i in ids).decode(errors="replace")


def spans(language, *tokens):
    words = words_of(range(len(tokens)), decoder(*tokens), language)
    return [(word.text, word.first, word.end) for word in words]


def test_a_word_begins_at_a_space():
    assert spans("en", " Good", " mor", "ning") == [(" Good", 0, 1), (" morning", 1, 3)]


def test_punctuation_is_written_with_its_word_and_is_no_part_of_its_time():
    assert spans("en", " Good", ",", " (", " day", "!", ")") == [
        (" Good,", 0, 1),
        (" ( day!)", 3, 4),
    ]


def test_a_character_of_several_tokens_is_not_cut():
    assert spans("en", " 1", EURO[:1], EURO[1:], " 2") == [(" 1€", 0, 3), (" 2", 3, 4)]


def test_a_language_without_spaces_is_cut_at_characters():
    tokens = ("你", "好", "。", EURO[:2], EURO[2:])
    assert spans("zh", *tokens) == [("你", 0, 1), ("好。", 1, 2), ("€", 3, 5)]
    assert spans("de", *tokens) == [("你好。€", 0, 5)]


def test_bytes_that_are_no_character_are_kept():
    assert spans("en", " a", b"\xff", " b") == [(" a\ufffd", 0, 2), (" b", 2, 3)]


def test_the_words_of_no_text_are_none():
    assert spans("en") == []


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


def test_a_word_lasts_from_its_first_token_to_the_next_word():
    """Its probability is the geometric mean over its tokens; ids from 100 on are timestamps."""
    ids = [100, 0, 1, 2, 3, 120]
    heard = judged(ids, [0, 5, 20, 30, 40, 50, 90], [-9, -0.1, -0.2, -0.4, -3, -9])
    piece = Piece(start=0, end=20, ids=tuple(ids), first=0)
    decode = decoder(" Good", " mor", "ning", ".")
    good, morning = timed_words(piece, heard, range(100), decode, "en", lambda at: at / 50)
    assert (good.text, good.start, good.end) == (" Good", 0.1, 0.4)
    assert (morning.text, morning.start, morning.end) == (" morning.", 0.4, 0.8)
    assert good.probability == pytest.approx(0.9048, abs=1e-4)
    assert morning.probability == pytest.approx(0.7408, abs=1e-4)


def test_a_later_piece_has_the_times_of_its_own_tokens():
    ids = [100, 0, 120, 120, 1, 140]
    heard = judged(ids, [0, 5, 20, 20, 25, 30, 35], [0] * 6)
    piece = Piece(start=20, end=40, ids=tuple(ids[3:]), first=3)
    (word,) = timed_words(piece, heard, range(100), decoder(" a", " b"), "en", float)
    assert (word.text, word.start, word.end) == (" b", 25, 30)
