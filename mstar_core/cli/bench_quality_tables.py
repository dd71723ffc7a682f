"""What a run over held-out questions came to, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mstar_core.cli.tables import columns

if TYPE_CHECKING:
    from mstar_core.bench.quality_reference import Difference
    from mstar_core.bench.quality_report import Outcome

SHOWN = 5
"""Answers that differ from the reference's; a report has all."""


def scores_table(outcome: Outcome, required: Mapping[str, float]) -> str:
    """A row per task and bucket, and what was asked of it."""
    below = outcome.below(required)
    rows = [("task", "right", "of", "accuracy", "required", "cut", "failed")]
    for name, one in outcome.scores.items():
        wanted = f"{required[name]:.1%}" if name in required else "-"
        accuracy = f"{one.accuracy:.1%}{' BELOW' if name in below else ''}"
        counts = (str(one.cut), str(one.failed))
        rows.append((name, str(one.right), str(one.of), accuracy, wanted, *counts))
    return columns(rows)


def differences_text(outcome: Outcome) -> str:
    """How many answers differ from the reference's, and the first of them; no ties first."""
    ties, apart = outcome.ties, outcome.apart
    lines = [
        f"differ     {len(apart) + len(ties)} of {outcome.compared} answers from the reference's, "
        f"{len(ties)} of them by a tie (at most {outcome.tie:.4g} nats)"
    ]
    alone = len(outcome.answers) - outcome.compared
    if alone:
        lines.append(f"           {alone} answers that the reference has not are held to nothing")
    if outcome.account is not None:
        one = outcome.account
        lines.append(
            f"error      {one.error:.4f} nats from fp32 at most, of {one.compared} "
            f"log probabilities; up to {one.times:g} times that is a tie"
        )
        found = [f"{one.margin:.4f}" for one in ties if one.margin is not None]
        if found:
            lines.append(f"ties       the widest is {max(found, key=float)} nats in fp32")
    lines += [_line(one) for one in [*apart, *ties][:SHOWN]]
    return "\n".join(lines)


def _line(one: Difference) -> str:
    name = f"{one.question.task} {one.question.number}"
    margin = "margin unknown" if one.margin is None else f"margin {one.margin:.4f} nats"
    texts = f"{one.here.text!r}, there {one.there.text!r}, right {one.question.answer!r}"
    return f"  {name}: {texts}; token {one.at}, {margin}"
