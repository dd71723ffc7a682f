"""Answers taken apart: reasoning, what is said, calls; the same whatever the pieces are."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mstar_qwen35.answer import Qwen35Answer
from mstar_qwen35.config import read_config
from mstar_qwen35.front import Qwen35Front

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string"},
                    "days": {"type": "integer"},
                    "deep": {"type": "boolean"},
                    "tags": {"type": "array"},
                },
            },
        },
    }
]
IN_JSON = '<tool_call>\n{"name": "look", "arguments": {"place": "Brno"}}\n</tool_call>'
IN_TAGS = (
    "<tool_call>\n<function=look>\n<parameter=place>\nBrno\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
BRNO = ("look", {"place": "Brno"})


def taken(*pieces, thinking=False, tools=TOOLS):
    """(reasoning, content, calls with their arguments read) of an answer that comes in pieces."""
    answer = Qwen35Answer(thinking=thinking, tools=tools)
    parts = [*map(answer.push, pieces), answer.finish()]
    calls = [(call.name, json.loads(call.arguments)) for part in parts for call in part.calls]
    return "".join(p.reasoning for p in parts), "".join(p.content for p in parts), calls


def test_reasoning_that_the_prompt_has_opened_ends_at_its_tag():
    """DT-02: the tag comes in two pieces, and the text around it is complete."""
    assert taken("Hi</thi", "nk>ok", thinking=True) == ("Hi", "ok", [])
    assert taken("Hi\n</think>\n\nok\n", thinking=True) == ("Hi", "ok\n", [])


def test_reasoning_that_the_answer_opens_itself_is_reasoning():
    assert taken("<think>\na\nb\n</think>\n\nc") == ("a\nb", "c", [])
    assert taken("  <thi", "nk>a</think>b") == ("a", "b", [])


def test_an_answer_without_tags_is_content_where_the_prompt_opened_no_reasoning():
    """API-07: nothing is taken for reasoning because a tag is missing."""
    assert taken('{"answer":42}') == ("", '{"answer":42}', [])


def test_reasoning_that_is_never_closed_stays_reasoning():
    assert taken("so far", "...\n", thinking=True) == ("so far...\n", "", [])


def test_a_call_inside_reasoning_comes_out_as_a_call():
    """API-06: `<tool_call>` without `</think>`."""
    assert taken("<think>a" + IN_JSON) == ("a", "", [BRNO])
    more = taken("a" + IN_JSON + "\n</think>\n\nb", thinking=True)
    assert more == ("a", "b", [BRNO])


@pytest.mark.parametrize(
    "whole", ['<tool_call>{"name": "look", "argu', "<tool_call>\n<function=look>\n"]
)
@pytest.mark.parametrize("start", ["", "<think>a", "said\n\n"])
def test_a_call_that_is_cut_off_is_given_as_it_is(whole, start):
    """API-06: the raw text is kept."""
    reasoning, content, calls = taken(start + whole)
    assert calls == []
    assert content == start.removeprefix("<think>a") + whole
    assert reasoning == ("a" if start == "<think>a" else "")


def test_two_calls_come_out_in_order_and_blanks_beside_them_are_dropped():
    """API-06: two calls, no reasoning."""
    days = ("look", {"place": "Brno", "days": 3})
    assert taken("I look.\n\n" + IN_JSON + "\n" + IN_TAGS + "\n") == ("", "I look.", [BRNO, days])


def test_without_tools_nothing_is_a_call():
    """API-06: tool_choice none."""
    assert taken("<think>a</think>" + IN_JSON, tools=()) == ("a", IN_JSON, [])
    assert taken("a" + IN_JSON, thinking=True, tools=()) == ("a" + IN_JSON, "", [])


def test_a_call_whose_closing_tag_is_missing_is_a_call_all_the_same():
    assert taken(IN_TAGS.removesuffix("\n</tool_call>"))[2] == [
        ("look", {"place": "Brno", "days": 3})
    ]


def test_values_are_read_as_the_schema_of_the_tool_says():
    def value(name, text):
        tags = f"<function=look>\n<parameter={name}>\n{text}\n</parameter>\n</function>"
        (call,) = taken(f"<tool_call>\n{tags}\n</tool_call>")[2]
        return call[1][name]

    assert value("place", "42") == "42"
    assert value("place", "a\nb\n") == "a\nb\n"
    assert value("place", "") == ""
    assert value("days", "42") == 42
    assert value("days", "soon") == "soon"
    assert value("deep", "true") is True
    assert value("deep", "False") is False
    assert value("tags", '["a", 1]') == ["a", 1]
    assert value("unknown", "7") == 7
    assert value("days", "NaN") == "NaN"


def test_a_closing_tag_inside_a_value_does_not_close_the_call():
    text = json.dumps({"name": "look", "arguments": {"place": "a</tool_call>b"}})
    assert taken(f"<tool_call>{text}</tool_call>")[2] == [("look", {"place": "a</tool_call>b"})]
    tags = IN_TAGS.replace("Brno", "a</tool_call>b</parameter>c")
    assert taken(tags)[2] == [("look", {"place": "a</tool_call>b</parameter>c", "days": 3})]


@pytest.mark.parametrize(
    "body",
    [
        "no call",
        '{"name": 3, "arguments": {}}',
        '{"name": "look", "arguments": []}',
        '{"name": "look", "arguments": {"a": NaN}}',
        '{"name": "look", "arguments": {}',
        "{" * 5000,
        "<function=>\n</function>",
        "<function=look>\nstray\n</function>",
    ],
)
def test_what_is_no_call_is_text(body):
    text = f"x <tool_call>{body}</tool_call> y"
    assert taken(text) == ("", text, [])


def test_arguments_given_as_text_are_passed_on_as_they_are():
    call = '<tool_call>{"name": "look", "arguments": "{\\"place\\": 1}"}</tool_call>'
    assert taken(call)[2] == [("look", {"place": 1})]


BITS = (
    *("<think>", "</think>", "\n", " ", "a", "<", IN_JSON, IN_TAGS, "<tool_call>", "</tool_call>"),
    *('{"name": "look"', "<function=", "</function>", "<tool", "</thi"),
)
PIECES = st.lists(st.sampled_from(BITS), max_size=12).map("".join)


@given(text=PIECES, cuts=st.lists(st.integers(0, 400), max_size=20), thinking=st.booleans())
def test_the_pieces_of_the_text_do_not_matter(text, cuts, thinking):
    marks = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(marks)]
    whole = taken(text, thinking=thinking)
    assert taken(*pieces, thinking=thinking) == whole
    assert taken(*text, thinking=thinking) == whole


@given(text=PIECES, thinking=st.booleans())
def test_without_tools_every_character_but_the_tags_of_reasoning_is_given(text, thinking):
    reasoning, content, _ = taken(text, thinking=thinking, tools=())
    missing = len(text) - len(reasoning) - len(content)
    opened = 0 if thinking else len("<think>")
    assert 0 <= missing <= opened + len("</think>") + 3 + 12


@given(text=PIECES, thinking=st.booleans())
def test_what_is_text_comes_out_in_its_order(text, thinking):
    """API-06: every character is accounted for: in reasoning, in content or in a call."""
    reasoning, content, calls = taken(text, thinking=thinking)
    assert is_inside(reasoning, text)
    assert is_inside(content, text)
    assert len(calls) <= text.count("<tool_call>")


def is_inside(part, text):
    """Whether the characters of ``part`` are in ``text``, in their order."""
    rest = iter(text)
    return all(character in rest for character in part)


def test_whether_the_prompt_opened_the_reasoning_is_read_off_its_end(tiny):
    front = Qwen35Front(tiny, read_config(tiny))
    for think, expected in (
        (True, ("a", "b")),
        (False, ("", "a</think>b")),
        (None, ("", "a</think>b")),
    ):
        said = [{"role": "user", "content": "<think> open"}]
        answer = front.answer(front.chat_request(said, think=think))
        parts = [answer.push("a</think>b"), answer.finish()]
        got = "".join(p.reasoning for p in parts), "".join(p.content for p in parts)
        assert got == expected


def test_the_bytes_of_tokens_join_to_the_bytes_of_the_text(tiny):
    """DT-04: a token may be a part of a character."""
    front = Qwen35Front(tiny, read_config(tiny))
    text = "Grüße ✅ 삼 \U0001f600 \u2028 ď <think>"
    ids = front.encode(text)
    assert b"".join(map(front.token_bytes, ids)).decode() == text
    assert front.token_bytes(front.tokenizer.vocab_size + 10_000) == b""
    assert front.token_bytes(front.tokenizer.eos_token_id) == b"<|im_end|>"
