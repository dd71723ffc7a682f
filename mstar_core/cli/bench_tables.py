"""Figures as a table that a person reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mstar_core.bench.stats import Figures, Spread, Summary
from mstar_core.cli.tables import columns
from mstar_core.errors import MstarError, Words

if TYPE_CHECKING:
    from mstar_core.bench.phases import Phases

DISTRIBUTIONS = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "late_ms", "rtf")


def machine_lines(machine: Mapping[str, str]) -> str:
    """What it was measured on."""
    return "\n".join(f"{key:<11}{value}" for key, value in machine.items())


def figures_table(found: Figures) -> str:
    """Totals, then distributions."""
    lines = [
        f"requests   {found.requests}, {found.failed} failed, in {found.duration_s:.3f} s",
        f"rates      {found.requests_per_s:.2f} requests/s, "
        f"{found.output_tokens_per_s:.1f} output tokens/s, "
        f"{found.total_tokens_per_s:.1f} tokens/s, {found.events_per_s:.0f} events/s",
        f"tokens     {found.mean_prompt_tokens:.1f} in, {found.mean_output_tokens:.1f} out, "
        f"{_number(found.tokens_per_chunk)} per chunk",
    ]
    if found.client_busy is not None:
        lines.append(f"client     {found.client_busy:.0%} of a processor, its busiest process")
    if found.goodput_per_s is not None:
        lines.append(f"goodput    {found.goodput_per_s:.2f} requests/s")
    if found.audio_s_per_s is not None:
        lines.append(f"sound      {found.audio_s_per_s:.2f} s per second")
    lines += [f"error      {count} x {code}" for code, count in found.errors.items()]
    rows: list[tuple[str, ...]] = [("", "mean", "median", "p90", "p99", "max", "of")]
    for name in DISTRIBUTIONS:
        one: Summary | None = getattr(found, name)
        if one is not None:
            values = (one.mean, one.median, one.p90, one.p99, one.max)
            rows.append((name, *map(_number, values), str(one.count)))
    return "\n".join([*lines, columns(rows)])


def rounds_table(found: Mapping[str, Spread]) -> str:
    """Each figure's median over rounds, with the least and the greatest."""
    rows: list[tuple[str, ...]] = [("", "median", "least", "greatest")]
    rows += [(name, *map(_number, (o.median, o.low, o.high))) for name, o in found.items()]
    return columns(rows)


def arms_table(first: Mapping[str, Spread], second: Mapping[str, Spread]) -> str:
    """Two arms side by side: medians with their spreads, and B in units of A."""
    rows = [("", "A", "least..greatest", "B", "least..greatest", "B / A")]
    for name in first:
        if name in second:
            a, b = first[name], second[name]
            ratio = f"{b.median / a.median:.3f}" if a.median else "-"
            rows.append((name, _number(a.median), _range(a), _number(b.median), _range(b), ratio))
    return columns(rows)


def phases_table(found: Phases) -> str:
    """The host's parts of a turn, then the graphs."""
    rows: list[tuple[str, ...]] = [("", "times", "median us", "total ms")]
    for kind, parts in (("host", found.host), ("graph", found.graphs)):
        for name, one in parts.items():
            figures = (f"{one.median_us:.1f}", f"{one.total_ms:.1f}")
            rows.append((f"{kind} {name}", str(one.count), *figures))
    return columns(rows)


def all_failed(found: Sequence[Figures]) -> bool:
    """Whether there is a run of which nothing came."""
    return any(one.failed == one.requests for one in found)


def check_report(flag: str, file: str) -> None:
    """Raise MstarError where ``file`` cannot be written, before anything is measured."""
    path = Path(file)
    got = None
    if path.is_dir():
        got = "a folder"
    elif not path.parent.is_dir():
        got = f"a file in {path.parent}, which is no folder"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        got = f"{file}: permission denied"
    if got is not None:
        want, fix = "a file that can be written", "give another FILE"
        raise MstarError(where=flag, got=Words(got), want=want, fix=fix)


def write_report(flag: str, file: str, text: str) -> None:
    """To the file that ``flag`` names. Raises MstarError where it cannot be written."""
    try:
        Path(file).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        want, fix = "a file that can be written", "the figures are above; give another FILE"
        raise MstarError(where=flag, got=Words(str(error)), want=want, fix=fix) from error


def _range(found: Spread) -> str:
    return f"{_number(found.low)}..{_number(found.high)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
