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


def differences_text(outcome: Outcome, tie: float) -> str:
    """How many answers differ from the reference's, and the first of them; no ties first."""
    found = outcome.differences
    ties = len(found) - len(outcome.apart(tie))
    lines = [
        f"differ     {len(found)} of {outcome.compared} answers from the reference's, "
        f"{ties} of them by a tie (at most {tie:g} nats)"
    ]
    in_order = sorted(found, key=lambda one: one.is_tie(tie))
    lines += [_line(one) for one in in_order[:SHOWN]]
    return "\n".join(lines)


def _line(one: Difference) -> str:
    name = f"{one.question.task} {one.question.number}"
    margin = "margin unknown" if one.margin is None else f"margin {one.margin:.4f} nats"
    texts = f"{one.here.text!r}, there {one.there.text!r}, right {one.question.answer!r}"
    return f"  {name}: {texts}; token {one.at}, {margin}"
