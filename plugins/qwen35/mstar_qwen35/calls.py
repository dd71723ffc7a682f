"""The two forms in which a Qwen3.5 model writes a call, between its tags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

from mstar_core.model.answer import ToolCall

FUNCTION, END_FUNCTION = "<function=", "</function>"
BLANKS = " \t\r\n"
_NAME = re.compile(r"[^\s<>\"]{1,256}")
_HEAD = re.compile(r"<function=([^\s<>\"]{1,256})>\s*")
_PARAMETER = re.compile(
    r"<parameter=([^\s<>\"]{1,256})>\n?(.*?)\n?</parameter>\s*(?=<parameter=|\Z)", re.DOTALL
)
_SPELLED = {"True": True, "False": False, "None": None}
"""As Python writes them, which templates do."""


def begins_call(text: str) -> bool | None:
    """Whether ``text``, behind the tag, is the beginning of a call; None: not to be seen yet."""
    text = text.lstrip(BLANKS)
    if text.startswith(("{", FUNCTION)):
        return True
    return None if FUNCTION.startswith(text) else False


def call_of(body: str, tools: Sequence[Mapping[str, Any]]) -> ToolCall | Literal["open"] | None:
    """The call that ``body`` is; ``open``: it is not over yet; None: it is none.

    Values are read as the schema in ``tools`` says: a text stays as it is, all else is JSON.
    """
    body = body.strip(BLANKS)
    if body.startswith(FUNCTION):
        return _of_tags(body, tools) if body.endswith(END_FUNCTION) else "open"
    try:
        made = _json(body)
    except (ValueError, RecursionError) as error:
        return "open" if "Unterminated string" in str(error) else None
    name, given = made.get("name"), made.get("arguments", made.get("parameters", {}))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    if isinstance(given, str):
        return ToolCall(name=name, arguments=given) if _is_object(given) else None
    return ToolCall(name=name, arguments=_text(given)) if isinstance(given, dict) else None


def _of_tags(body: str, tools: Sequence[Mapping[str, Any]]) -> ToolCall | None:
    head = _HEAD.match(body)
    if head is None:
        return None
    types = _types_of(head[1], tools)
    inner, at = body.removesuffix(END_FUNCTION).rstrip(BLANKS), head.end()
    arguments: dict[str, Any] = {}
    while at < len(inner):
        parameter = _PARAMETER.match(inner, at)
        if parameter is None:
            return None
        arguments[parameter[1]] = _value(parameter[2], types.get(parameter[1]))
        at = parameter.end()
    return ToolCall(name=head[1], arguments=_text(arguments))


def _types_of(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Parameter → its ``type`` in the schema of tool ``name``, as far as there is one."""
    for tool in tools:
        function = tool.get("function", {})
        if function.get("name") == name:
            schema = function.get("parameters") or {}
            properties = schema.get("properties") if isinstance(schema, Mapping) else None
            if isinstance(properties, Mapping):
                return {k: v.get("type") for k, v in properties.items() if isinstance(v, Mapping)}
    return {}


def _value(text: str, type: Any) -> Any:
    if type == "string":
        return text
    try:
        return _SPELLED[text] if text in _SPELLED else _json_value(text)
    except (ValueError, RecursionError):
        return text


def _json(text: str) -> dict[str, Any]:
    value = _json_value(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _json_value(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _is_object(text: str) -> bool:
    try:
        return isinstance(_json_value(text), dict)
    except (ValueError, RecursionError):
        return False


def _text(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
