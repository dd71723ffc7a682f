"""Held-out instances of every task, one JSON object a line; the same for the same seed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tools.train_micro import tasks
from tools.train_micro.tasks import Turn
from tools.train_micro.tokenizer import Encoder

SEED = 20_011
"""Training uses other seeds."""
DISTANCES = {"recall": (10, 500), "recall_far": (1800, 2000)}
"""Tokens between what gives a key its value and the question."""


def instances(encoder: Encoder, per_task: int) -> Iterator[dict[str, Any]]:
    """``per_task`` instances of each task; fewer are the first ones of more."""
    short: tuple[Callable[..., Turn], ...] = (
        tasks.add,
        tasks.subtract,
        tasks.copy,
        tasks.reverse,
        tasks.count,
    )
    for draw in short:
        rng = Random(f"{SEED} {draw.__name__}")
        for _ in range(per_task):
            yield _line(encoder, draw(rng, held_out=True))
    rng = Random(f"{SEED} story")
    for _ in range(per_task):
        yield _line(encoder, tasks.story(rng, 1)[0])
    for name in DISTANCES:
        rng = Random(f"{SEED} {name}")
        for _ in range(per_task):
            yield _recall(encoder, rng, name)


def _recall(encoder: Encoder, rng: Random, name: str) -> dict[str, Any]:
    low, high = DISTANCES[name]
    while True:
        size = rng.randint(low + 10, high + 60)
        turn = tasks.recall(rng, size, 1, encoder.count)[0]
        told = turn.question.rsplit("\n", 1)[0]
        distance = encoder.count(told.split(turn.answer, 1)[1])
        if low <= distance <= high:
            return _line(encoder, Turn(name, turn.question, turn.answer), distance)


def _line(encoder: Encoder, turn: Turn, distance: int | None = None) -> dict[str, Any]:
    return {
        "task": turn.task,
        "messages": [{"role": "user", "content": turn.question}],
        "answer": turn.answer,
        "max_tokens": encoder.count(turn.answer) + 8,
        "distance": distance,
    }


def write(file: Path, encoder: Encoder, per_task: int) -> None:
    """Write them to ``file``, compressed and without a date."""
    text = "".join(json.dumps(each) + "\n" for each in instances(encoder, per_task))
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def read(file: Path) -> list[dict[str, Any]]:
    """The instances in ``file``."""
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
