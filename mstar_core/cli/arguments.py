"""Numbers as arguments: the ``type`` of one that argparse refuses with a sentence."""

from __future__ import annotations

import argparse
import math

from mstar_core.config.schema import MOST_ROWS

PROMISES = ("ttft", "tpot", "e2el")
"""What ``--goodput`` may ask for."""


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1)


def count_or_0(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, 0)


def counts(text: str) -> list[int]:
    """Whole numbers of at least 1 with commas between them."""
    return [count(part) for part in text.split(",")]


def row_counts(text: str) -> list[int]:
    """Numbers of a step's rows with commas between them, each as ``engine.max_rows`` may be."""
    found = counts(text)
    for one in found:
        if one > MOST_ROWS:
            raise argparse.ArgumentTypeError(f"{one} is more rows than {MOST_ROWS}")
    return found


def seconds(text: str) -> float:
    """A finite number of seconds above 0."""
    return _above_0(text, "number of seconds")


def positive(text: str) -> float:
    """A finite number above 0."""
    return _above_0(text, "number")


def promises(text: str) -> dict[str, float]:
    """``ttft:200,tpot:20`` → milliseconds by name."""
    found = {}
    for part in text.split(","):
        name, colon, value = part.partition(":")
        if not colon or name not in PROMISES:
            raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(PROMISES)} with :MS")
        found[name] = positive(value)
    return found


def shares(text: str) -> dict[str, float]:
    """``a=0.95,b@500=0.8`` → a share from 0 to 1 by name."""
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = math.nan
        if not name or not equals or not 0 <= found[name] <= 1:
            raise argparse.ArgumentTypeError(f"{part!r} is no NAME=SHARE, a share from 0 to 1")
    return found


def at_least_0(text: str) -> float:
    """A finite number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 0")
    return number


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.strip().isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


def _above_0(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no {what} above 0")
    return number
