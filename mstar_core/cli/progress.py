"""A bar on stderr for what takes long, where a person is watching; elsewhere a line at times."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

WIDTH = 24
REDRAW_S = 0.1
LOG_EVERY_S = 5.0
log = logging.getLogger(__name__)


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


class SoundProgress:
    """How many seconds of sound have been heard of all, or been made: a bar for a person, else a
    log line."""

    def __init__(self, total_s: float | None = None) -> None:
        """``total_s``: of all sound; None where nobody knows."""
        self._total_s = total_s
        self._is_watched = sys.stderr.isatty()
        self._began_s = self._shown_s = time.monotonic()
        self._began_at: float | None = None
        """What had been heard before this run."""

    def show(self, heard_s: float) -> None:
        """So much has been heard or made; said ten times a second, or every ``LOG_EVERY_S``."""
        now_s = time.monotonic()
        if self._began_at is None:
            self._began_at, self._began_s = heard_s, now_s
            return
        if now_s - self._shown_s < (REDRAW_S if self._is_watched else LOG_EVERY_S):
            return
        self._shown_s = now_s
        speed = (heard_s - self._began_at) / (now_s - self._began_s)
        of = "" if self._total_s is None else f" of {self._total_s:.1f}"
        told = f"{heard_s:.1f}{of} s of sound, {speed:.1f} times real time"
        if self._is_watched:
            bar = "" if self._total_s is None else f"[{_bar(heard_s, self._total_s)}] "
            print(f"\r{bar}{told}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            log.info("%s", told)

    def clear(self) -> None:
        """Make room for a line."""
        if self._is_watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bar(done_s: float, total_s: float) -> str:
    filled = int(WIDTH * (min(done_s / total_s, 1.0) if total_s else 1.0))
    return "#" * filled + "." * (WIDTH - filled)
