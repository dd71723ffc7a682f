"""Long text in parts of whole sentences, of which nothing is lost."""

# ruff: noqa: RUF001 (marks of several scripts)

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_core.text.parts import parts


@pytest.mark.parametrize(
    ("text", "most", "want"),
    [
        ("One. Two. Three.", 20, ["One. Two. Three."]),
        ("One. Two. Three.", 9, ["One. Two.", "Three."]),
        ("One. Two. Three.", 15, ["One. Two.", "Three."]),
        ("“Go!” he said. She went.", 20, ["“Go!” he said.", "She went."]),
        ("It is 3.14 and no more. So?", 25, ["It is 3.14 and no more.", "So?"]),
        ("J. S. Bach wrote it. Then we sang.", 24, ["J. S. Bach wrote it.", "Then we sang."]),
        ("Yes. I met J. Smith in town.", 16, ["Yes.", "I met J. Smith", "in town."]),
        ("好的。我们走吧！真的？", 6, ["好的。", "我们走吧！", "真的？"]),
        ("a paragraph\n\nand another one", 20, ["a paragraph", "and another one"]),
        ("a paragraph\n \nand another one", 15, ["a paragraph", "and another one"]),
        ("one two\n\nthree", 7, ["one two", "three"]),
        ("one two\nthree four\nfive", 18, ["one two\nthree four", "five"]),
        ("one two three", 7, ["one two", "three"]),
        ("so many words, and no end", 16, ["so many words,", "and no end"]),
        ("so many words and no end", 16, ["so many words", "and no end"]),
        ("aaaaaaaaaa", 4, ["aaaa", "aaaa", "aa"]),
        ("e\u0301" * 4, 3, ["e\u0301", "e\u0301", "e\u0301", "e\u0301"]),
        ("  \n ", 4, []),
        ("", 4, []),
    ],
)
def test_text_is_cut_where_there_is_the_least_to_break(text, most, want):
    assert parts(text, most) == want


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab ,.\n!?。\u0301\u200dÄ", max_size=80), st.integers(1, 20))
def test_nothing_but_space_is_lost_and_no_part_is_too_long(text, most):
    found = parts(text, most)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(part == part.strip() and 0 < len(part) <= most for part in found)
