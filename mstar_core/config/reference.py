"""The page ``docs/config.md``, written from the schema so that it cannot differ from it."""

from __future__ import annotations

from typing import Any, get_type_hints

import attrs

from mstar_core.config.schema import MOVED, Config
from mstar_core.config.types import describe_type, is_section, mapping_item

_HEAD = """# Configuration

This page is written by `mstar_core.config.reference`; a test compares it with the schema.

A configuration is one YAML file. `mstar-core explain CONFIG` prints every value and where it came
from; `--set dotted.key=value` on any command overrides one. An unknown key is an error that names
the nearest known one. Only `true` and `false` are truth values: `on`, `off`, `yes` and `no` are
words. Numbers of bytes may be written with a unit: `512MiB`, `2GiB`, `2GB` (decimal).
"""


def config_reference() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD, *_section(Config, "")]
    moved = ["## Keys that moved", "", "| key | now |", "|---|---|"]
    moved += [f"| `{old}` | {new} |" for old, new in MOVED.items()]
    return "\n".join([*parts, "\n".join(moved), ""])


def _section(cls: type, path: str) -> list[str]:
    hints = get_type_hints(cls, include_extras=True)
    title = f"## `{path}`" if path else "## Top level"
    lines = [
        title,
        "",
        str(cls.__doc__),
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
    ]
    inner: list[str] = []
    for attribute in attrs.fields(cls):
        hint, full = hints[attribute.name], f"{path}.{attribute.name}".lstrip(".")
        item = mapping_item(hint)
        meaning = attribute.metadata.get("about", "")
        if is_section(hint):
            inner += _section(hint, full)
            meaning = f"see `{full}` below"
        elif is_section(item):
            inner += _section(item, f"{full}.NAME")  # type: ignore[arg-type]
        kind, default = describe_type(hint), _default(attribute.default)
        lines.append(f"| `{attribute.name}` | {kind} | {default} | {meaning} |")
    return ["\n".join([*lines, ""]), *inner]


def _default(default: Any) -> str:
    if default is attrs.NOTHING:
        return "required"
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return ""
    if default is None:
        return "`null`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{list(default) if isinstance(default, tuple) else default}`"
