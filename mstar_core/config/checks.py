"""Validators for configuration classes, and the type for a number of bytes.

They say the accepted range in the reader's words. ``type(value) is int`` is on purpose: ``True``
and ``16.0`` are slips of the pen where a whole number is meant, and both are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from attrs import Attribute

from mstar_core.config.findings import list_words
from mstar_core.errors import ConfigError
from mstar_core.names import nearest

Validator = Callable[[Any, "Attribute[Any]", Any], None]


def about(text: str) -> dict[str, Any]:
    """Field metadata: the sentence that ``docs/config.md`` prints for this key."""
    return {"about": text}


class ByteUnit:
    """Marks an ``int`` field as a number of bytes, which may be written as ``2GiB``."""


Bytes = Annotated[int, ByteUnit()]
BYTES_WANT = "a number of bytes: a whole number, or text such as 512MiB or 2GiB"

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\sA-Z/?#@]+")

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


def parse_bytes(value: object) -> int:
    """``2GiB``, ``1.5 GB`` or a whole number as a number of bytes. Raises ConfigError."""
    if type(value) is int and value >= 0:
        return value
    match = (
        re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)", value.strip())
        if isinstance(value, str)
        else None
    )
    if match and match[2].lower() in _UNITS:
        return int(float(match[1]) * _UNITS[match[2].lower()])
    raise ConfigError(where="bytes", got=value, want=BYTES_WANT, fix="write for example 2GiB")


def whole(low: int, high: int | None = None, unit: str = "") -> Validator:
    """A plain integer from ``low`` to ``high`` (no upper end when None)."""
    span = f"from {low} to {high}" if high is not None else f"of at least {low}"
    want = f"a whole number {span}" + (f" ({unit})" if unit else "")
    fix = f"write for example {_inside(low, high)}"

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        if type(value) is int and low <= value and (high is None or value <= high):
            return
        raise ConfigError(where=attribute.name, got=value, want=want, fix=fix)

    return check


def _inside(low: int, high: int | None) -> int:
    return max(low, 1) if high is None else min(max(low, 1), high)


def number(low: float, high: float | None = None, unit: str = "", above: bool = False) -> Validator:
    """A finite int or float from ``low`` (not ``low`` itself with ``above``) to ``high``."""
    span = f"above {low}" if above else f"of at least {low}"
    span += f" and at most {high}" if high is not None else ""
    want = f"a finite number {span}" + (f" ({unit})" if unit else "")

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        fits = (
            type(value) in (int, float)
            and math.isfinite(value)
            and (value > low if above else value >= low)
            and (high is None or value <= high)
        )
        if not fits:
            raise ConfigError(
                where=attribute.name, got=value, want=want, fix="write a number in that range"
            )

    return check


def one_of(*words: str) -> Validator:
    """One of a few words."""
    want = f"one of {list_words(words)}"

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        if isinstance(value, str) and value in words:
            return
        guess = nearest(value, words) if isinstance(value, str) else None
        raise ConfigError(
            where=attribute.name, got=value, want=want, fix=f"write {guess or words[0]}"
        )

    return check


def origins(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """Web origins as browsers send them: a scheme and a host, and nothing behind; or a star."""
    for origin in value:
        if not (isinstance(origin, str) and (origin == "*" or _ORIGIN.fullmatch(origin))):
            raise ConfigError(
                where=attribute.name,
                got=origin,
                want="web origins, such as https://app.example or http://localhost:3000, or *",
                fix="write scheme, host and port in small letters, and no slash at the end",
            )


def flag(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """True or False, and nothing that merely counts as one."""
    if type(value) is not bool:
        raise ConfigError(
            where=attribute.name, got=value, want="true or false", fix="write true or false"
        )


def words(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """Text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(
            where=attribute.name, got=value, want="text that is not empty", fix="write a name"
        )
