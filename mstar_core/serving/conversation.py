"""A conversation as clients send it, as a request of the model's front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from mstar_core.model.front import Request
from mstar_core.serving.asking import check_size, encoded
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.chat import Message, Tool
from mstar_core.serving.protocol.reading import unsupported

_FIELDS = {"tools": "tools", "think": "reasoning_effort"}
"""Option of a front → the field that asks for it."""


async def chat_request(
    exchange: Exchange,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    think: bool | None,
    options: Mapping[str, Any],
) -> Request:
    """The request that answers ``messages``. Raises ApiError and RequestError."""
    front, _ = exchange.service.loaded()
    most = exchange.service.limits.max_messages
    if len(messages) > most:
        message = f"{len(messages)} messages; at most {most} are taken."
        raise ApiError("limit_exceeded", message, param="messages")
    more: dict[str, Any] = {"tools": tools} if tools else {}
    if think is not None:
        more["think"] = think
    for name in sorted(set(more) - front.chat_options()):
        raise unsupported(_FIELDS[name], "The model that is served does not do it")
    plain = [_plain_message(message) for message in messages]
    num_chars = _num_chars([plain, list(tools)])
    check_size(exchange, num_chars)
    return await encoded(num_chars, lambda: front.chat_request(plain, **more, **options))


def plain_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """``tools`` as templates know them: without what was not given."""
    return [attrs.asdict(tool, filter=_is_given) for tool in tools]


def think_of(kwargs: Mapping[str, Any], effort: str | None) -> bool | None:
    """Whether the model shall think; None where the client leaves it open. Raises ApiError."""
    for name in kwargs:
        if name != "enable_thinking":
            raise unsupported("chat_template_kwargs", "enable_thinking is the only one there is")
    think = kwargs.get("enable_thinking")
    if think is not None and not isinstance(think, bool):
        param = "chat_template_kwargs.enable_thinking"
        raise ApiError("invalid_value", f"`{param}` must be true or false.", param=param)
    if think is None and effort is not None:
        return effort != "none"
    return think


def _plain_message(message: Message) -> dict[str, Any]:
    """``message`` as templates know it; what it says is there even where it is nothing."""
    plain = {"content": None} | attrs.asdict(message, filter=_is_given)
    if message.role == "developer":
        plain["role"] = "system"
    if not message.tool_calls:
        plain.pop("tool_calls", None)
    return plain


def _is_given(attribute: object, value: object) -> bool:
    return value is not None


def _num_chars(value: object) -> int:
    """Characters of all texts in lists and objects."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_num_chars, value)) + sum(map(_num_chars, value.values()))
    return sum(map(_num_chars, value)) if isinstance(value, list) else 0
