"""Stop strings and stop ids over scripted tokens."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_core.errors import RequestError
from mstar_core.text import StopStrings, TextDelta, TextStream


def scripted(*tokens):
    return lambda ids: "".join(tokens[i] for i in ids)


def run(tokens, *, group=1, **settings):
    """(text, tokens accepted, finish reason, stop, pieces) of all tokens, ended by length."""
    stream = TextStream(scripted(*tokens), **settings)
    ids = list(range(len(tokens)))
    out = [stream.push(ids[at : at + group]) for at in range(0, len(ids), group)]
    out = [*out, stream.finish()]
    texts = [delta.text for delta in out]
    end = out[-1]
    return "".join(texts), sum(d.num_tokens for d in out), end.finish_reason, end.stop, texts


QUICK = ["The qu", "ick br", "own", " fox", " runs"]


@pytest.mark.parametrize("group", [1, 2, 3, 5])
def test_a_stop_across_tokens_is_found_and_none_of_it_leaks(group):
    """DT-01: a stop string across tokens, several tokens a step."""
    text, num_tokens, reason, stop, pieces = run(QUICK, group=group, stops=["own fox"])
    assert (text, num_tokens, reason, stop) == ("The quick br", 4, "stop", "own fox")
    assert all("own" not in piece for piece in pieces)


def test_a_stop_inside_one_token_cuts_the_token():
    """DT-01: a stop inside one token."""
    assert run(["xxSTOPyy", "zz"], stops=["STOP"])[:4] == ("xx", 1, "stop", "STOP")


def test_a_stop_equal_to_the_first_token_gives_no_text():
    """DT-01: a stop equal to the first token."""
    assert run(["END", "more"], stops=["END"])[:4] == ("", 1, "stop", "END")


@pytest.mark.parametrize("stops", [["own", "own fox"], ["own fox", "own"]])
@pytest.mark.parametrize("group", [1, 5])
def test_of_a_stop_and_its_beginning_the_one_that_is_complete_first_wins(stops, group):
    """DT-01: two stops where one is a prefix of the other."""
    assert run(QUICK, group=group, stops=stops)[:4] == ("The quick br", 3, "stop", "own")


@pytest.mark.parametrize("stops", [["fox", "own fox"], ["own fox", "fox"]])
def test_of_two_stops_that_end_together_the_longest_wins(stops):
    assert run(QUICK, stops=stops)[:4] == ("The quick br", 4, "stop", "own fox")


def test_a_stop_may_be_included():
    assert run(QUICK, stops=["own fox"], include_stop=True)[0] == "The quick brown fox"


def test_a_head_that_does_not_become_a_stop_is_released():
    assert run(["ab", "ac", "ad"], stops=["abad"])[4][:3] == ["", "abac", "ad"]


def test_only_a_real_beginning_of_a_stop_is_held_back():
    """DT-02: hold back nothing that cannot start a stop."""
    tokens = ["Hi", "<thin", "k>", "ok", "zz"]
    *_, pieces = run(tokens, stops=["zzzzzzzzzz"])
    assert pieces == ["Hi", "<thin", "k>", "ok", "", "zz"]


def test_held_text_is_released_by_a_stop_id_and_by_the_end():
    """DT-02: full text delivered at EOS and at max_tokens."""
    tokens = ["Hi", "</think>", "ok", "zz", "<eos>"]
    assert run(tokens, stops=["zzzzzzzzzz"], stop_ids=[4])[:4] == ("Hi</think>okzz", 5, "stop", 4)
    assert run(tokens[:4], stops=["zzzzzzzzzz"])[:4] == ("Hi</think>okzz", 4, "length", None)


def test_a_stop_id_in_the_middle_of_a_step_ends_the_text_before_it():
    """DT-03: the step returns [5, 7 (stop), 9]."""
    words = {5: "five", 7: "</s>", 9: "nine"}

    def decode(ids):
        return "".join(words[i] for i in ids)

    stream = TextStream(decode, stop_ids=[7])
    assert stream.push([5, 7, 9]) == TextDelta(
        text="five", num_tokens=2, finish_reason="stop", stop=7
    )
    assert stream.is_finished
    assert stream.push([9]) == TextDelta(finish_reason="stop", stop=7)
    shown = TextStream(decode, stop_ids=[7], include_stop=True).push([5, 7, 9])
    assert (shown.text, shown.num_tokens) == ("five</s>", 2)


def test_a_stop_with_a_leading_space_matches_the_final_text():
    """DT-06: stop ' any' and several of different length."""
    words = [" atoms", " with", " any", " ionized"]

    def decode(ids):
        return "".join(words[i] for i in ids).removeprefix(" ")

    stream = TextStream(decode, stops=[" any", "atoms with 11 protons", "ionized"])
    out = [stream.push([i]) for i in range(4)]
    assert "".join(delta.text for delta in out) == "atoms with"
    assert (out[2].finish_reason, out[2].stop) == ("stop", " any")


def test_a_character_cut_off_by_a_stop_id_is_one_replacement():
    pieces = [b"a", b"\xf0\x9f", b""]
    stream = TextStream(
        lambda ids: b"".join(pieces[i] for i in ids).decode(errors="replace"), stop_ids=[2]
    )
    assert stream.push([0, 1, 2]).text == "a\ufffd"


def test_a_stop_string_found_in_one_group_counts_only_the_tokens_up_to_it():
    assert TextStream(scripted(*QUICK), stops=["k b"]).push([0, 1, 2, 3]).num_tokens == 2


def test_finishing_names_the_reason_and_finishing_twice_adds_nothing():
    stream = TextStream(scripted("a"))
    stream.push([0])
    assert stream.finish("abort") == TextDelta(finish_reason="abort")
    assert stream.finish("length") == TextDelta(finish_reason="abort")


@pytest.mark.parametrize("stops", [[""], ["a", ""], "abc", [3], [None]])
def test_a_stop_that_is_no_text_is_a_request_error(stops):
    with pytest.raises(RequestError, match="stop"):
        StopStrings(stops)


@given(
    text=st.text("abc", max_size=40),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    cuts=st.lists(st.integers(1, 6), max_size=40),
)
def test_any_cutting_of_the_text_gives_what_single_characters_give(text, stops, cuts):
    def emitted(pieces):
        found = StopStrings(stops)
        out = "".join(found.push(piece)[0] for piece in pieces) + found.finish()
        return out, found.hit

    pieces, at = [], 0
    for cut in [*cuts, len(text)]:
        pieces.append(text[at : at + cut])
        at += cut
    out, hit = emitted(pieces)
    assert (out, hit) == emitted(list(text)) == emitted([text])
    assert all(stop not in out for stop in stops)
    assert text.startswith(out + (hit or ""))


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=3), max_size=40),
    stops=st.lists(st.text("ab\u010f", min_size=1, max_size=3), max_size=2),
    stop_ids=st.sets(st.integers(0, 39), max_size=2),
    cuts=st.lists(st.integers(1, 6), max_size=40),
)
def test_any_grouping_of_tokens_gives_the_same_text_and_count(pieces, stops, stop_ids, cuts):
    def decode(ids):
        return b"".join(pieces[i] for i in ids).decode(errors="replace")

    def told(groups):
        stream = TextStream(decode, stops=stops, stop_ids=stop_ids)
        out = [*(stream.push(group) for group in groups), stream.finish()]
        text = "".join(delta.text for delta in out)
        return text, sum(d.num_tokens for d in out), out[-1].finish_reason, out[-1].stop

    ids = list(range(len(pieces)))
    groups, at = [], 0
    for cut in [*cuts, len(ids)]:
        groups.append(ids[at : at + cut])
        at += cut
    assert told(groups) == told([[i] for i in ids]) == told([ids])


def test_text_is_free_of_torch_and_transformers():
    heavy = "bool({'torch', 'transformers'} & {*sys.modules})"
    code = f"import sys, mstar_core.text; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
