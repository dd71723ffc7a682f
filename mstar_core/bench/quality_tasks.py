"""Held-out tasks: a file of questions in chat form, each with the one answer that is right.

JSON Lines in UTF-8 (gzip where the name ends in ``.gz``), an object a line::

    {"task": "addition", "messages": [{"role": "user", "content": "12 + 30 ="}], "answer": "42",
     "max_tokens": 8, "distance": null}

``distance`` may be left out: how many tokens before the question that stands which the answer
needs. A model ships its tasks as ``quality.jsonl`` or ``quality.jsonl.gz`` in its checkpoint's
folder; one without a checkpoint beside its configuration.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from mstar_core.errors import RequestError, Words

SHIPPED = ("quality.jsonl", "quality.jsonl.gz")
FIRST_EDGE = 125
"""Distances up to this are the first bucket; the next reach twice as far, each."""
WANT = {
    "task": "a name without @ and commas",
    "messages": "a list of messages with role and content",
    "answer": "text without white space around it",
    "max_tokens": "a whole number of at least 1",
    "distance": "a whole number of at least 0 (tokens), or null",
}


@frozen(kw_only=True)
class Question:
    """One line of the file."""

    number: int
    """From 0, in the file."""
    task: str
    messages: Sequence[Mapping[str, Any]]
    answer: str
    max_tokens: int
    distance: int | None

    @property
    def bucket(self) -> str | None:
        """``TASK@EDGE`` of its distance: at most EDGE and more than half of it; None without."""
        if self.distance is None:
            return None
        edge = FIRST_EDGE
        while edge < self.distance:
            edge *= 2
        return f"{self.task}@{edge}"


@frozen(kw_only=True)
class Tasks:
    """All of a file, or the first of each task."""

    file: str
    sha256: str
    """Of all that the file holds, unpacked: the same questions have the same numbers."""
    questions: tuple[Question, ...]

    def names(self) -> list[str]:
        """Every task, and every bucket of its distances."""
        found = ((question.task, question.bucket) for question in self.questions)
        return list(dict.fromkeys(name for pair in found for name in pair if name is not None))

    def first(self, limit: int) -> Tasks:
        """The first ``limit`` questions of each task."""
        seen: Counter[str] = Counter()
        kept = []
        for question in self.questions:
            seen[question.task] += 1
            if seen[question.task] <= limit:
                kept.append(question)
        return Tasks(file=self.file, sha256=self.sha256, questions=tuple(kept))


def shipped_tasks(folder: Path) -> Path:
    """The file of tasks that a model ships in ``folder``. Raises RequestError for none."""
    for name in SHIPPED:
        if (folder / name).is_file():
            return folder / name
    raise RequestError(
        where=str(folder),
        got=Words("a model that ships no tasks"),
        want=f"{' or '.join(SHIPPED)} in its folder",
        fix="name a file of tasks with --tasks FILE",
    )


def read_tasks(file: Path) -> Tasks:
    """The tasks of a file. Raises RequestError that names the line and the field."""
    try:
        packed = file.read_bytes()
        text = gzip.decompress(packed) if file.suffix == ".gz" else packed
        lines = text.decode("utf-8").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise RequestError(
            where=str(file),
            got=Words(str(error)),
            want="JSON Lines in UTF-8, packed by gzip where the name ends in .gz",
            fix="check the file's name and what is in it",
        ) from error
    questions = tuple(_questions(file, lines))
    if not questions:
        raise RequestError(
            where=str(file),
            got=Words("no line"),
            want="a question a line",
            fix="name a file with questions",
        )
    digest = hashlib.sha256(text).hexdigest()
    return Tasks(file=file.name, sha256=digest, questions=questions)


def _questions(file: Path, lines: Sequence[str]) -> Iterator[Question]:
    number = 0
    for at, line in enumerate(lines, 1):
        if line.strip():
            yield _question(f"{file}:{at}", number, line)
            number += 1


def _question(where: str, number: int, line: str) -> Question:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise _wrong(where, Words(str(error)), "a JSON object") from error
    if not isinstance(values, dict):
        raise _wrong(where, values, "a JSON object")
    for name, want in WANT.items():
        if not _is_good(name, values.get(name)):
            got = values.get(name, Words("nothing"))
            raise _wrong(f"{where}: {name}", got, want)
    facts: dict[str, Any] = {name: values.get(name) for name in WANT}
    return Question(number=number, **facts)


def _is_good(name: str, value: object) -> bool:
    if name == "task":
        return isinstance(value, str) and bool(value) and not set(value) & set("@,=")
    if name == "messages":
        return isinstance(value, list) and all(isinstance(one, dict) for one in value)
    if name == "answer":
        return isinstance(value, str) and value == value.strip()
    least = 1 if name == "max_tokens" else 0
    absent = name == "distance" and value is None
    return absent or (isinstance(value, int) and value is not True and value >= least)


def _wrong(where: str, got: object, want: str) -> RequestError:
    return RequestError(where=where, got=got, want=want, fix="correct the line")
