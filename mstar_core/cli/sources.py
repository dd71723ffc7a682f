"""The sound files that a command line names: files as they are, folders with all that they hold."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from attrs import frozen

from mstar_core.audio import WAV_HEAD, is_sound


@frozen(kw_only=True)
class Source:
    """One file that is to be heard."""

    path: str
    name: str
    """Its name among the outputs: of a file in a folder, the way to it from there."""


def sources_of(given: Sequence[str]) -> list[Source]:
    """Every file, and of every folder the sound files below it, by content and in order.

    What is hidden (``.name``) in a folder is left out. A folder without any, and a path where
    nothing is, stay as they are: reading them says what is wrong.
    """
    found: list[Source] = []
    for path in given:
        inside = list(_inside(path)) if os.path.isdir(path) else []
        found += inside or [Source(path=path, name=os.path.basename(os.path.normpath(path)))]
    return found


def _inside(folder: str) -> Iterator[Source]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.join(at, name)
            if not name.startswith(".") and _is_sound(path):
                yield Source(path=path, name=os.path.relpath(path, folder))


def _is_sound(path: str) -> bool:
    """Whether a file begins as sound does; one that cannot be opened is told so when it is read."""
    try:
        with open(path, "rb") as file:
            return is_sound(file.read(WAV_HEAD))
    except OSError:
        return True
