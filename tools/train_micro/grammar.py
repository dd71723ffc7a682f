"""Plain English sentences by a small grammar: one draws them, one says whether a text is one."""

from __future__ import annotations

from functools import cache
from random import Random

from tools.train_micro.words import (
    ANIMALS,
    COLOURS,
    DEEDS,
    FOODS,
    MANNERS,
    MOVES,
    NAMES,
    PEOPLE,
    PLACES,
    PREPOSITIONS,
    QUALITIES,
    THINGS,
)

Rules = dict[str, tuple[tuple[str, ...], ...]]
"""A symbol's forms. A part of a form that is no symbol is a word."""

_BEINGS = ANIMALS + PEOPLE
_SINGULAR_OF = {"child": "children", "man": "men", "woman": "women", "fish": "fish"}
_SINGULAR_OF |= {"sheep": "sheep", "mouse": "mice", "wolf": "wolves", "fox": "foxes"}


def _plural(noun: str) -> str:
    return _SINGULAR_OF.get(noun, noun + "s")


def _each(words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple((word,) for word in words)


RULES: Rules = {
    "sentence": (("one", "does"), ("many", "do"), ("name", "does")),
    "one": (("The", "being"), ("The", "quality", "being"), ("A", "being"), ("My", "being")),
    "many": (("The", "beings"), ("The", "quality", "beings"), ("Two", "beings")),
    "does": (
        ("moves",),
        ("moves", "manner"),
        ("moves", "where"),
        ("deeds", "thing"),
        ("deeds", "thing", "where"),
        ("eats", "food"),
        ("is", "quality"),
        ("is", "where"),
    ),
    "do": (
        ("move",),
        ("move", "manner"),
        ("move", "where"),
        ("deed", "thing"),
        ("eat", "food"),
        ("are", "quality"),
        ("are", "where"),
    ),
    "thing": (("the", "object"), ("the", "colour", "object"), ("a", "colour", "object")),
    "where": (("preposition", "the", "place"),),
    "being": _each(_BEINGS),
    "beings": _each(tuple(map(_plural, _BEINGS))),
    "name": _each(NAMES),
    "object": _each(THINGS),
    "place": _each(PLACES),
    "colour": _each(COLOURS),
    "quality": _each(QUALITIES),
    "food": _each(FOODS),
    "manner": _each(MANNERS),
    "preposition": _each(PREPOSITIONS),
    "moves": _each(tuple(pair.split()[0] for pair in MOVES)),
    "move": _each(tuple(pair.split()[1] for pair in MOVES)),
    "deeds": _each(tuple(pair.split()[0] for pair in DEEDS)),
    "deed": _each(tuple(pair.split()[1] for pair in DEEDS)),
}
SUBJECTS = _BEINGS


def draw(rng: Random, subject: str | None = None) -> str:
    """A sentence; about ``subject``, one of SUBJECTS, where it is given."""
    if subject is None:
        return " ".join(_words("sentence", rng)) + "."
    start = [*rng.choice((["The"], ["A"], ["My"], ["The", rng.choice(QUALITIES)])), subject]
    return " ".join([*start, *_words("does", rng)]) + "."


def _words(symbol: str, rng: Random) -> list[str]:
    forms = RULES.get(symbol)
    if forms is None:
        return [symbol]
    form = forms[int(rng.random() * len(forms))]
    return [word for part in form for word in _words(part, rng)]


def parses(text: str) -> bool:
    """Whether ``text`` is exactly one sentence of the grammar."""
    words = tuple(text.removesuffix(".").split(" "))
    return text.endswith(".") and len(words) in _ends("sentence", words, 0)


@cache
def _ends(symbol: str, words: tuple[str, ...], at: int) -> frozenset[int]:
    """Where a form of ``symbol`` that begins at word ``at`` may end."""
    if symbol not in RULES:
        return frozenset({at + 1} if words[at : at + 1] == (symbol,) else ())
    ends: set[int] = set()
    for form in RULES[symbol]:
        reached = {at}
        for part in form:
            reached = {end for start in reached for end in _ends(part, words, start)}
        ends |= reached
    return frozenset(ends)
