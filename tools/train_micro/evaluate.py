"""Greedy accuracy of the training model on held-out instances, and how its sentences parse.

An answer is right when the likeliest token is the right one at each of its positions and at the
end: what greedy decoding would say, found by one pass over prompt and answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from tools.train_micro.grammar import parses
from tools.train_micro.model import MicroModel, half
from tools.train_micro.tasks import Turn
from tools.train_micro.tokenizer import Encoder

TOKENS = 65_536
"""Of one pass."""


@torch.no_grad()
def accuracy(
    model: MicroModel, encoder: Encoder, instances: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """The share of right answers by task."""
    right, asked = Counter[str](), Counter[str]()
    rows = []
    for each in instances:
        turn = Turn(each["task"], each["messages"][-1]["content"], each["answer"])
        rows.append((turn.task, *encoder.turn(turn)))
    rows.sort(key=lambda row: len(row[1]))
    while rows:
        longest = len(rows[-1][1])
        taken, rows = rows[-max(1, TOKENS // longest) :], rows[: -max(1, TOKENS // longest)]
        ids = torch.tensor([_padded(row[1], longest, encoder.end_of_text) for row in taken])
        learnt = torch.tensor([_padded(row[2], longest, 0) for row in taken]).bool()
        device = model.norm.weight.device
        with half(device):
            said = model(ids.to(device)).argmax(-1).cpu()
        wrong = ((said[:, :-1] != ids[:, 1:]) & learnt[:, 1:]).any(-1)
        for (task, *_), is_wrong in zip(taken, wrong.tolist(), strict=True):
            asked[task] += 1
            right[task] += not is_wrong
    return {task: right[task] / asked[task] for task in asked}


def _padded(row: list[int], length: int, filling: int) -> list[int]:
    return row + [filling] * (length - len(row))


@torch.no_grad()
def sentences(
    model: MicroModel, encoder: Encoder, tokenizer: Tokenizer, num: int, seed: int = 0
) -> tuple[int, list[str]]:
    """How many of ``num`` sentences drawn at temperature one parse, and those that don't."""
    device = model.norm.weight.device
    draws = torch.Generator(device).manual_seed(seed)
    prompt = encoder.prompt("Write a sentence.")
    ids = torch.tensor([prompt] * num, device=device)
    for _ in range(24):
        with half(device):
            chances = model(ids)[:, -1].float().softmax(-1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=draws)], 1)
    texts = []
    for row in ids[:, len(prompt) :].tolist():
        said = row[: row.index(encoder.end)] if encoder.end in row else row
        texts.append(tokenizer.decode(said, skip_special_tokens=False))
    wrong = [text for text in texts if not parses(text)]
    return num - len(wrong), wrong
