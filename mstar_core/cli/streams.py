"""The process's own text: arguments and standard streams in UTF-8, whatever the locale says."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from mstar_core.errors import RequestError, UsageError, Words

UNWRITABLE = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)
"""What a write to stdout fails with when the place behind it takes nothing more."""


def open_streams() -> None:
    """Make the standard streams UTF-8; what no UTF-8 can say is written with backslashes.

    Raises UsageError where stdout is closed: a result would go nowhere.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise UsageError(
            where="stdout",
            got=Words("closed"),
            want="somewhere for the result to go",
            fix="end the command with >FILE, or with >/dev/null to drop the result",
        )
    for stream, errors in (
        (sys.stdin, "strict"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def drop_stdout() -> None:
    """Send what is still held for stdout nowhere, so that nothing is said of it at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def text_of(where: str) -> Callable[[str], str]:
    """The ``type`` of an argument that is text. UsageError, from ``where``, if it is not UTF-8."""

    def decode(word: str) -> str:
        try:
            return _rejoined(word, "strict")
        except UnicodeError as error:
            raise UsageError(
                where=where,
                got=word.encode("utf-8", "surrogateescape"),
                want="text in UTF-8",
                fix="convert the text to UTF-8",
            ) from error

    return decode


def add_texts(parser: argparse.ArgumentParser, *rows: tuple[str, str, str]) -> None:
    """Declare arguments of text: each a flag, what stands for its value, and its help."""
    for flag, metavar, text in rows:
        parser.add_argument(flag, type=text_of(flag), metavar=metavar, help=text)


def given_text(flag: str, given: str) -> str:
    """The text that ``given``, the value of ``flag``, stands for: ``-`` is stdin, ``@FILE`` a file.

    Raises RequestError for what cannot be read, UsageError for an argument that is not UTF-8.
    """
    try:
        if given == "-":
            return _read_stdin()
        if given.startswith("@"):
            return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            where=flag,
            got=Words(str(error)),
            want="readable text in UTF-8: a file behind @, or stdin for -",
            fix="check the file's name, and convert what is in it to UTF-8",
        ) from error
    return text_of(flag)(given)


def shown(path: str) -> str:
    """A path as it is printed: where the locale left bytes that are UTF-8, their characters."""
    return _rejoined(path, "surrogateescape")


def _read_stdin() -> str:
    if sys.stdin is None:
        raise OSError("stdin is closed")
    return sys.stdin.read()


def _rejoined(word: str, errors: str) -> str:
    return word.encode("utf-8", "surrogateescape").decode("utf-8", errors)
