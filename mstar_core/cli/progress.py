"""A bar on stderr for what takes long, where a person is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable

WIDTH = 24


def progress_bar() -> Callable[[str, int, int], None]:
    """``progress(phase, done, total)``: a bar redrawn in place; silent without a terminal."""
    if not sys.stderr.isatty():
        return lambda phase, done, total: None

    def draw(phase: str, done: int, total: int) -> None:
        filled = WIDTH * done // total if total else WIDTH
        bar = "#" * filled + "." * (WIDTH - filled)
        end = "\n" if done >= total else ""
        print(f"\r{phase:<8} [{bar}]", end=end, file=sys.stderr, flush=True)

    return draw
