"""Bytes to checked values and back: the one module that knows the codec library (msgspec).

JSON for people, MessagePack between processes. What is decoded into a type is checked against it
on the way: bounds (``Meta``), closed sets (``Literal``), no NaN, no infinity, no ``true`` for a
number. Neither format can carry code.
"""

from __future__ import annotations

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
    "from_json",
    "pack",
    "packed",
    "schemas",
    "to_json",
]

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
        what, _, path = str(error).partition(" - at `")
        param = path.rstrip("`").removeprefix("$").lstrip(".") or None
        raise ApiError("invalid_value", what, param=param) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what = str(error) if isinstance(error, msgspec.DecodeError) else "too deep, or not UTF-8"
        raise ApiError("invalid_json", f"The body is not valid JSON: {what}") from None


def schemas(types: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """JSON Schemas of ``types``, and the components that they refer to."""
    made, parts = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return list(made), dict(parts)


@cache
def _reader(type: Any) -> Any:
    return msgspec.json.Decoder(type)


@cache
def _unpacker(type: Any) -> Any:
    return msgspec.msgpack.Decoder(type)
