"""Bytes to checked values and back: the one module that knows the codec library (msgspec).

JSON for people, MessagePack between processes. What is decoded into a type is checked against it
on the way: bounds (``Meta``), closed sets (``Literal``), no NaN, no infinity, no ``true`` for a
number. Neither format can carry code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from mstar_core.serving.errors import ApiError

__all__ = [
    "UNSET",
    "Meta",
    "Raw",
    "Struct",
    "UnsetType",
    "from_form",
    "from_json",
    "pack",
    "packed",
    "schemas",
    "to_json",
]

_MISSING = "Object missing required field "
_json = msgspec.json.Encoder()
_pack = msgspec.msgpack.Encoder()


def to_json(value: Any) -> bytes:
    """JSON in UTF-8, on one line."""
    return _json.encode(value)


def pack(value: Any) -> bytes:
    """MessagePack of a message."""
    return _pack.encode(value)


def packed(data: bytes | memoryview, type: Any) -> Any:
    """The message in ``data``. Raises ValueError for what is no such message."""
    return _unpacker(type).decode(data)


def from_json(data: bytes, type: Any) -> Any:
    """A client's JSON as ``type``. Raises ApiError (400) that names the field."""
    try:
        return _reader(type).decode(data)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what = str(error) if isinstance(error, msgspec.DecodeError) else "too deep, or not UTF-8"
        raise ApiError("invalid_json", f"The body is not valid JSON: {what}") from None


def from_form(fields: Mapping[str, Sequence[str]], type: Any) -> Any:
    """A client's form as ``type``: text is read as what the field is. Raises ApiError (400)."""
    lists = _lists(type)
    given = {name: list(all_) if name in lists else all_[-1] for name, all_ in fields.items()}
    try:
        return msgspec.convert(given, type, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None


def schemas(types: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """JSON Schemas of ``types``, and the components that they refer to."""
    made, parts = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return list(made), dict(parts)


def _invalid(error: msgspec.ValidationError) -> ApiError:
    what, _, path = str(error).partition(" - at `")
    path = path.rstrip("`").rpartition("`")[2]  # of a key it says: key` in `$.field
    param = path.removeprefix("$").lstrip(".") or None
    if what.startswith(_MISSING):
        name = what.removeprefix(_MISSING).strip("`")
        param = f"{param}.{name}" if param else name
        return ApiError("missing_field", f"`{param}` is missing.", param=param)
    return ApiError("invalid_value", what, param=param)


@cache
def _lists(type: Any) -> frozenset[str]:
    """The fields of ``type`` that are lists."""
    info = msgspec.inspect.type_info(type)
    fields = info.fields if isinstance(info, msgspec.inspect.DataclassType) else ()
    return frozenset(f.name for f in fields if isinstance(f.type, msgspec.inspect.ListType))


@cache
def _reader(type: Any) -> Any:
    return msgspec.json.Decoder(type)


@cache
def _unpacker(type: Any) -> Any:
    return msgspec.msgpack.Decoder(type)
