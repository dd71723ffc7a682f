"""Every value of a resolved configuration and where it came from, as rows."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import frozen

from mstar_core.config.located import Origin
from mstar_core.config.resolve import Resolved
from mstar_core.config.schema import Config


@frozen
class Row:
    """One dotted path, its value and its origin."""

    path: str
    value: Any
    origin: Origin

    @property
    def text(self) -> str:
        """The value as YAML would write it, on one line."""
        return _text(self.value)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        return {"path": self.path, "value": self.value, "origin": attrs.asdict(self.origin)}


def describe(resolved: Resolved) -> list[Row]:
    """One row per value: sections in the schema's order, then what else was noted."""
    order = {name: place for place, name in enumerate(attrs.fields_dict(Config))}
    paths = sorted(resolved.values, key=lambda path: order.get(path.split(".")[0], len(order)))
    return [Row(path, resolved.values[path], resolved.origin[path]) for path in paths]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    return str(value)
