"""What has been heard so far, beside the outputs: a line for each step, the last ones win.

A run that ended in any way, by Ctrl-C or by a crash, is so gone on with where it stood. A line that
was cut is as if it had not been written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import define, field

from mstar_core.cli.output_dir import cannot_write
from mstar_core.model.segment import Segment, Word

NAME = ".mstar-core-transcribe.jsonl"


@define(kw_only=True, eq=False)
class Entry:
    """What is known of one output."""

    key: str
    """Of the settings and the input that it is made of."""
    segments: list[Segment] = field(factory=list)
    state: dict[str, Any] = field(factory=dict)
    """Of the plan, behind the segments."""
    done: bool = False


class Journal:
    """The journal of an output folder. What adds to it raises UsageError where it cannot."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there."""
        self._folder = folder
        self._entries: dict[str, Entry] = {}
        path = folder / NAME
        if path.is_file():
            for line in path.read_bytes().splitlines():
                self._read(line)

    def entry(self, target: Path) -> Entry | None:
        """What is known of an output; None for one that was never begun."""
        return self._entries.get(self._name(target))

    def begin(self, target: Path, key: str) -> None:
        """Forget what is known of an output: it is made anew."""
        self._note(target, {"key": key})

    def add(self, target: Path, segments: Sequence[Segment], state: Mapping[str, Any]) -> None:
        """More of an output that was begun."""
        more = [attrs.asdict(segment) for segment in segments]
        self._note(target, {"segments": more, "state": dict(state)})

    def finish(self, target: Path) -> None:
        """An output is written."""
        self._note(target, {"done": True})

    def _note(self, target: Path, told: dict[str, Any]) -> None:
        line = json.dumps({"output": self._name(target), **told}).encode()
        try:
            with (self._folder / NAME).open("ab") as file:
                file.write(b"\n" + line + b"\n")
        except OSError as error:
            raise cannot_write(error) from error
        self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            told = json.loads(line)
            name = told["output"]
            if "key" in told:
                self._entries[name] = Entry(key=told["key"])
                return
            entry = self._entries[name]
            entry.done = told.get("done", False)
            entry.segments += [_segment(each) for each in told.get("segments", ())]
            entry.state = told.get("state", entry.state)
        except (ValueError, KeyError, TypeError):
            return

    def _name(self, target: Path) -> str:
        return str(target.relative_to(self._folder))


def _segment(told: Mapping[str, Any]) -> Segment:
    words = told["words"]
    return Segment(
        **{
            **told,
            "ids": tuple(told["ids"]),
            "words": None if words is None else tuple(Word(**word) for word in words),
        }
    )
