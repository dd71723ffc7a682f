"""Incremental detokenising, with tokens that are scripted pieces of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from mstar_core.text import Detokenizer

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def byte_decode(ids):
    return bytes(ids).decode("utf-8", errors="replace")


def pieces_decode(pieces):
    return lambda ids: b"".join(pieces[i] for i in ids).decode("utf-8", errors="replace")


def spaced_decode(words):
    """As SentencePiece does: a word carries its leading space, which the first one loses."""
    return lambda ids: "".join(words[i] for i in ids).removeprefix(" ")


def fallback_decode(ids):
    """As byte fallback does: a run that is not UTF-8 as a whole is one U+FFFD a byte."""
    try:
        return bytes(ids).decode("utf-8")
    except UnicodeDecodeError:
        return "\ufffd" * len(ids)


def deltas(decode, groups):
    detokenizer = Detokenizer(decode)
    return [*(detokenizer.push(group) for group in groups), detokenizer.finish()]


def test_characters_of_several_bytes_come_out_whole():
    """DT-04: one byte a token: an emoji, Hangul, a Czech letter, a joined family."""
    for text in ["\U0001f600", "\uc0bc", "\u010f", FAMILY, f"a{FAMILY}b\u010f \uc0bc"]:
        out = deltas(byte_decode, [[byte] for byte in text.encode()])
        assert "".join(out) == text
        assert all("\ufffd" not in delta for delta in out)


def test_text_that_ends_inside_a_character_shows_one_replacement():
    """DT-04: the generation ends inside a character."""
    for cut in (1, 2, 3):
        out = deltas(byte_decode, [[byte] for byte in b"hi" + "\U0001f600".encode()[:cut]])
        assert "".join(out) == "hi\ufffd"
        assert out[-1] == "\ufffd"


def test_bytes_that_are_no_text_do_not_hold_the_stream_back_for_ever():
    """DT-04: no stream that is empty for ever."""
    out = deltas(byte_decode, [[0x80]] * 100)
    assert "".join(out) == "\ufffd" * 100
    assert sum(map(len, out[:50])) >= 18


def test_bytes_that_break_off_are_shown_when_text_follows():
    assert "".join(deltas(byte_decode, [[0xF0], [0x9F], [0x41]])) == "\ufffdA"


def test_the_first_token_loses_its_leading_space_and_later_ones_keep_theirs():
    """DT-06: leading spaces as in the full decode."""
    words = [" the", " cat", ",", " sat"] * 20
    ids = list(range(len(words)))
    out = deltas(spaced_decode(words), [[i] for i in ids])
    assert "".join(out) == spaced_decode(words)(ids)
    assert out[:3] == ["the", " cat", ","]


def test_byte_fallback_runs_longer_than_the_window_stay_right():
    text = "\uc0bc\u010f\U0001f600" * 20
    assert "".join(deltas(fallback_decode, [[byte] for byte in text.encode()])) == text


def test_a_byte_fallback_run_that_is_cut_off_ends_in_one_replacement():
    data = "\uc0bc\u010f".encode() + b"\xf0\x9f"
    assert "".join(deltas(fallback_decode, [[byte] for byte in data])) == "\uc0bc\u010f\ufffd"


def test_a_token_costs_the_same_at_the_end_of_a_long_text():
    longest = 0

    def decode(ids):
        nonlocal longest
        longest = max(longest, len(ids))
        return byte_decode(ids)

    for data in ("\uc0bc".encode() * 500, b"a" * 1500, b"\x80" * 1500):
        assert "".join(deltas(decode, [[byte] for byte in data])) == byte_decode(data)
    assert longest <= 64


def test_tokens_without_text_leave_the_text_right():
    words = [" a", "", " b"]
    ids = [0, *[1] * 100, 2, *[1] * 100, 0]
    assert "".join(deltas(spaced_decode(words), [[token] for token in ids])) == "a b a"


def test_nothing_gives_nothing():
    assert deltas(byte_decode, [[], []]) == ["", "", ""]


bytes_pieces = st.lists(
    st.one_of(
        st.binary(min_size=0, max_size=3),
        st.sampled_from([b"\xf0\x9f", b"\x98\x80", b"\xec\x82", b"\xbc", b" a", b"\xef\xbf\xbd"]),
        st.text(max_size=2).map(lambda text: text.encode("utf-8", errors="replace")),
    ),
    max_size=120,
)


@given(pieces=bytes_pieces, cuts=st.lists(st.integers(1, 5), max_size=200))
def test_any_grouping_of_any_bytes_gives_the_full_decode(pieces, cuts):
    decode = pieces_decode(pieces)
    ids = list(range(len(pieces)))
    groups, at = [], 0
    for cut in [*cuts, len(ids)]:
        groups.append(ids[at : at + cut])
        at += cut
    assert "".join(deltas(decode, groups)) == decode(ids)


@given(text=st.text(max_size=80))
def test_no_piece_of_good_text_holds_half_a_character(text):
    text = text.replace("\ufffd", "")
    out = deltas(byte_decode, [[byte] for byte in text.encode("utf-8", errors="replace")])
    assert all("\ufffd" not in delta for delta in out)
