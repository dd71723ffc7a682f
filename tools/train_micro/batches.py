"""Batches of conversations, drawn by processes of their own so that training never waits.

A row is one conversation, cut at the batch's length; batch ``step`` is drawn from its own seed, so
the corpus doesn't depend on how many processes there are.
"""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Iterator
from random import Random

import numpy as np
from attrs import frozen
from tokenizers import Tokenizer

from tools.train_micro.tasks import Turn, recall, short, story
from tools.train_micro.tokenizer import Encoder

SHORT, MIDDLE, LONG = 256, 512, 2304
"""Lengths of rows, tokens: short tasks; stories and near keys; far keys."""
EVERY = 36_864
"""Tokens of a batch: a multiple of each length, so that all batches have as many."""
MOST_DISTANT = 2060
BARE = 0.06
"""Share of short rows without a template."""


@frozen(kw_only=True)
class Plan:
    """How the corpus is drawn."""

    seed: int
    steps: int
    tokens: int = EVERY
    """Of a batch."""


def shares(progress: float) -> tuple[float, float, float]:
    """Of batches of each length, when ``progress`` (0 to 1) of the steps is done."""
    if progress < 0.1:
        return 0.7, 0.3, 0.0
    if progress < 0.3:
        return 0.5, 0.4, 0.1
    return 0.5, 0.25, 0.25


def batch(plan: Plan, step: int, encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
    """``ids_BL`` int16 and ``learnt_BL`` bool of step ``step``."""
    rng = Random(plan.seed * 1_000_003 + step)
    progress = step / plan.steps
    length = rng.choices((SHORT, MIDDLE, LONG), shares(progress))[0]
    num_rows = max(1, plan.tokens // length)
    ids_BL = np.full((num_rows, length), encoder.end_of_text, np.int16)
    learnt_BL = np.zeros((num_rows, length), bool)
    for row in range(num_rows):
        ids, learnt = _row(rng, length, progress, encoder)
        ids_BL[row, : len(ids)] = ids
        learnt_BL[row, : len(ids)] = learnt
    return ids_BL, learnt_BL


def _row(
    rng: Random, length: int, progress: float, encoder: Encoder
) -> tuple[list[int], list[int]]:
    bare = length == SHORT and rng.random() < BARE
    ids: list[int] = []
    learnt: list[int] = []
    waiting = _opening(rng, length, progress, encoder)
    while len(ids) < length:
        turn = waiting.pop(0) if waiting else short(rng)
        more, which = encoder.bare(turn) if bare else encoder.turn(turn)
        ids += more
        learnt += which
    return ids[:length], learnt[:length]


def _opening(rng: Random, length: int, progress: float, encoder: Encoder) -> list[Turn]:
    if length == SHORT:
        return []
    if length == LONG:
        least = 600 if rng.random() < 0.4 else 1700
        return recall(rng, rng.randint(least, MOST_DISTANT), 40, encoder.count)
    if rng.random() < 0.5:
        return [turn for _ in range(2) for turn in story(rng, 4)]
    most = 100 + int(min(1.0, progress / 0.1) * 380)
    return recall(rng, rng.randint(20, most), 20, encoder.count)


def stream(plan: Plan, tokenizer: Tokenizer, num_processes: int) -> Iterator[tuple]:
    """The batches of all steps in order; without processes they are drawn here."""
    if not num_processes:
        encoder = Encoder(tokenizer)
        yield from (batch(plan, step, encoder) for step in range(plan.steps))
        return
    context = mp.get_context("spawn")
    queues = [context.Queue(maxsize=6) for _ in range(num_processes)]
    text = tokenizer.to_str()
    workers = [
        context.Process(target=_draw, args=(plan, text, queue, at, num_processes), daemon=True)
        for at, queue in enumerate(queues)
    ]
    for worker in workers:
        worker.start()
    try:
        for step in range(plan.steps):
            yield queues[step % num_processes].get()
    finally:
        for worker in workers:
            worker.terminate()


def _draw(plan: Plan, tokenizer: str, queue: mp.Queue, first: int, stride: int) -> None:
    encoder = Encoder(Tokenizer.from_str(tokenizer))
    for step in range(first, plan.steps, stride):
        queue.put(batch(plan, step, encoder))
