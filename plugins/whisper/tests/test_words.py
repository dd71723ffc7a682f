"""Tokens to words: spaces, characters in several tokens, punctuation."""

from __future__ import annotations

from mstar_whisper.words import words_of

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
