"""Did-you-mean: the nearest known name to one that nobody has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CUTOFF = 0.5
"""How alike two names must be. difflib's own 0.6 misses a bare part of a joined name."""


def normalise(name: str) -> str:
    """A name as people mean it: lower case, ``-`` and ``_`` alike, dots dropped."""
    return name.lower().replace("-", "_").replace(".", "")


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``name`` was most likely meant to be, or None if none is close."""
    spelled = {normalise(candidate): candidate for candidate in sorted(candidates, reverse=True)}
    found = get_close_matches(normalise(name), spelled, n=1, cutoff=CUTOFF)
    return spelled[found[0]] if found else None


def suggest(name: str, candidates: Iterable[str]) -> str:
    """A ``fix`` sentence: the nearest name if there is one, else all there are."""
    known = sorted(candidates)
    near = nearest(name, known)
    if near is not None:
        return f"write {near!r}"
    return f"write one of: {', '.join(known)}" if known else "remove it: there is nothing to name"
