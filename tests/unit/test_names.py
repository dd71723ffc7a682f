"""Did you mean."""

import pytest

from mstar_core.names import nearest, suggest

KNOWN = ("speech35", "whistle", "flash_fer", "aiter_gdn")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("speech3.5", "speech35"),
        ("wistle", "whistle"),
        ("Flash-Fer", "flash_fer"),
        ("gdn", "aiter_gdn"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_found_whatever_the_spelling(typed, meant):
    assert nearest(typed, KNOWN) == meant


def test_a_suggestion_names_the_nearest_or_all():
    assert suggest("wistle", KNOWN) == "write 'whistle'"
    assert suggest("zzz", ("b", "a")) == "write one of: a, b"
    assert suggest("zzz", ()) == "remove it: there is nothing to name"


def test_equal_spellings_are_told_apart_the_same_way_in_any_order():
    assert nearest("a.b", ("a-b", "a_b", "ab")) == nearest("a.b", ("ab", "a_b", "a-b"))
