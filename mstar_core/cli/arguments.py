"""Numbers as arguments: the ``type`` of one that argparse refuses with a sentence."""

from __future__ import annotations

import argparse
import math


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isascii() and text.strip().isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def counts(text: str) -> list[int]:
    """Whole numbers of at least 1 with commas between them."""
    return [count(part) for part in text.split(",")]


def seconds(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return number
