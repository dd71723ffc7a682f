"""One annotated type against one value: does it fit, and how is it said in words."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from mstar_core.config.checks import BYTES_WANT, ByteUnit, parse_bytes
from mstar_core.config.findings import list_words
from mstar_core.config.located import Located
from mstar_core.errors import ConfigError
from mstar_core.names import nearest

_WORDS = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false"}


def is_section(hint: Any) -> bool:
    """Whether this type is a configuration class of its own."""
    return isinstance(hint, type) and attrs.has(hint) and hint is not Located


def mapping_item(hint: Any) -> Any | None:
    """The value type of ``Mapping[str, X]``, or None for any other type."""
    return get_args(hint)[1] if get_origin(hint) in (Mapping, dict) else None


def is_optional(hint: Any) -> bool:
    """Whether null is accepted."""
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def options_of(hint: Any) -> tuple[Any, ...]:
    """The types a value may have, null left out: one for a plain type, several for a union."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(option for option in get_args(hint) if option is not type(None))
    return (hint,)


def default_value(default: Any) -> Any:
    """What a field's default gives; a factory is called."""
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def describe_type(hint: Any) -> str:
    """The type in a reader's words: ``a whole number, or null``."""
    said = " or ".join(_describe_one(option) for option in options_of(hint))
    return f"{said}, or null" if is_optional(hint) else said


def _describe_one(hint: Any) -> str:
    if _is_bytes(hint):
        return BYTES_WANT
    if get_origin(hint) is Literal:
        return f"one of {list_words(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return f"a list, each {describe_type(get_args(hint)[0])}"
    if mapping_item(hint) is not None or is_section(hint) or hint is Located:
        return "a mapping"
    if hint in _WORDS:
        return _WORDS[hint]
    raise TypeError(f"{hint!r} is not a type that a configuration class can use")


def read_value(hint: Any, at: Located, path: str) -> Any:
    """The value as the type wants it. Raises ConfigError naming the place otherwise.

    A whole number is taken where a number is meant; nothing else is converted.
    """
    if at.value is None and is_optional(hint):
        return None
    for option in options_of(hint):
        fits, value = _read_one(option, at, path)
        if fits:
            return value
    got = at.plain()
    raise ConfigError(
        where=at.origin.where(path), got=got, want=describe_type(hint), fix=_fix(hint, got)
    )


def _read_one(hint: Any, at: Located, path: str) -> tuple[bool, Any]:
    value = at.value
    if _is_bytes(hint):
        try:
            return True, parse_bytes(value)
        except ConfigError:
            return False, None
    if get_origin(hint) is Literal:
        written = at.text if at.origin.kind == "set" else value
        return any(type(written) is type(w) and written == w for w in get_args(hint)), written
    if get_origin(hint) is tuple:
        if not at.is_list:
            return False, None
        item = get_args(hint)[0]
        return True, tuple(read_value(item, one, f"{path}[{i}]") for i, one in enumerate(value))
    if hint is str and at.origin.kind == "set" and at.text is not None:
        return True, at.text
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value), value
    if hint in _WORDS:
        return type(value) is hint, value
    raise TypeError(f"{hint!r} is not a type that a configuration class can use")


def _is_bytes(hint: Any) -> bool:
    return get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], ByteUnit)


def _fix(hint: Any, got: object) -> str:
    options = options_of(hint)
    if bool in options:
        return "write true or false"
    if isinstance(got, str):
        words = [
            str(w) for option in options if get_origin(option) is Literal for w in get_args(option)
        ]
        if words:
            return f"write {nearest(got, words) or words[0]}"
        if int in options or float in options:
            plain = got.strip().lstrip("+-").replace(".", "", 1)
            return f"write {got} without quotes" if plain.isdigit() else "write a number"
    if str in options and isinstance(got, bool | int | float):
        return f'put it in quotes: "{str(got).lower()}"'
    if any(get_origin(option) is tuple for option in options) and not isinstance(got, dict):
        return f"write a list: [{got}]"
    if int in options or float in options:
        return "write a plain number, such as 8"
    return f"write {describe_type(hint)}"
