"""The shape of a chat, checked before the checkpoint's template sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mstar_core.errors import RequestError, Words


def check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise RequestError unless ``messages`` is a list of messages of text.

    Which roles there are and in which order they may come is for the template to say.
    """
    if not isinstance(messages, list | tuple) or not messages:
        raise refused(Words("no messages") if isinstance(messages, list | tuple) else messages)
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise refused(message, where)
        content = message.get("content")
        if isinstance(content, list | tuple):
            for part in content:
                _check_part(part, f"{where}.content")
        elif not isinstance(content, str) and (content is not None or message["role"] == "user"):
            raise refused(content, f"{where}.content")


def for_template(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """``messages`` as templates read them: the arguments of a call are an object, not its text.

    Raises RequestError for arguments that are no JSON object.
    """
    return [_with_objects(message, f"messages[{i}]") for i, message in enumerate(messages)]


def refused(got: object, where: str = "messages") -> RequestError:
    """The error for a chat that cannot be rendered."""
    return RequestError(
        where=where,
        got=got,
        want="messages with a role and text: a system message first or none, then at least one "
        "user message",
        fix="correct the messages",
    )


def _check_part(part: Any, where: str) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind is None or (kind == "text" and not isinstance(part.get("text"), str)):
        raise refused(part, where)
    if kind != "text":
        raise RequestError(
            where=where,
            got=Words(f"a part of type {kind!r}"),
            want="parts of type 'text': images are not served yet",
            fix="describe the image in words, or leave it out",
        )


def _with_objects(message: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_with_object(call, f"{where}.tool_calls") for call in calls]}


def _with_object(call: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    given = function.get("arguments")
    try:
        read = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, Mapping):
        raise RequestError(
            where=f"{where}.function.arguments",
            got=given,
            want="the JSON text of an object",
            fix="send the arguments as the answer had them",
        )
    return {**call, "function": {**function, "arguments": read}}
