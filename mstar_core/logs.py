"""Logging of the command and its processes: to stderr, as text or as one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from typing import Literal


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class ToStderr(logging.Handler):
    """Writes to whatever ``sys.stderr`` is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line per record, in one write."""
        say(self.format(record))


def say(text: str) -> None:
    """A line to stderr. Where nobody reads it any more, that stops nothing."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def start_logging(level: str, form: Literal["text", "json"]) -> None:
    """Send records of at least ``level`` to stderr."""
    handler = ToStderr()
    text = logging.Formatter("%(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
