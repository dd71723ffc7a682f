"""Plain text for a terminal: columns, and a Refusal as two lines."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from mstar_core.errors import Refusal


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as aligned columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def why(refusal: Refusal) -> str:
    """A Refusal below its row: what is wrong, and what mends it."""
    text = f"{refusal.where}: {refusal.got} (want {refusal.want})\nfix: {refusal.fix}"
    return textwrap.indent(text, "    ")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
