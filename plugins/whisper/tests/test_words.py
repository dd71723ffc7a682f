"""Tokens to words: spaces, characters in several tokens, punctuation."""

from __future__ import annotations

import numpy as np
import pytest
from mstar_whisper.judging import Judged
from mstar_whisper.window import Window
from mstar_whisper.words import timed, words_of

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


def window(loud_F, first=0):
    return Window(first=first, num_frames=len(loud_F), course=iter([None]), loud_F=loud_F)


def times(tokens, at, heard, where):
    words = words_of(range(len(tokens)), decoder(*tokens), "en")
    told = [timed(word, at, heard, where) for word in words]
    return [(word.text, word.start, word.end) for word in told], told


def test_a_word_lasts_from_its_first_token_to_the_next_word():
    """Its probability is the geometric mean over its tokens; ids from 100 on are timestamps."""
    ids = [100, 0, 1, 2, 3, 120]
    heard = judged(ids, [0, 5, 20, 30, 40, 50, 90], [-9, -0.1, -0.2, -0.4, -3, -9])
    where = window(np.ones(300, bool), first=1000)
    found, told = times((" Good", " mor", "ning", "."), [1, 2, 3, 4], heard, where)
    assert found == [(" Good", 10.1, 10.4), (" morning.", 10.4, 10.8)]
    assert told[0].probability == pytest.approx(0.9048, abs=1e-4)
    assert told[1].probability == pytest.approx(0.7408, abs=1e-4)


def test_a_word_reaches_into_no_pause_and_not_behind_the_windows_end():
    """Here: a pause before the first, within the second, all over the third; the fourth is cut."""
    loud_F = np.ones(200, bool)
    loud_F[:20] = loud_F[60:70] = loud_F[100:140] = False
    heard = judged([0, 1, 2, 3], [0, 20, 50, 70, 150], [0] * 4)
    found, _ = times((" a", " b", " c", " d"), [0, 1, 2, 3], heard, window(loud_F))
    assert found == [(" a", 0.2, 0.4), (" b", 0.4, 1.0), (" c", 1.0, 1.4), (" d", 1.4, 2.0)]
