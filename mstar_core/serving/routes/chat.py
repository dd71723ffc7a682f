"""``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from mstar_core.serving import asking
from mstar_core.serving.answering import Whole, answered, choices_of
from mstar_core.serving.chunks import ChatChunks, made_call
from mstar_core.serving.codec import UNSET
from mstar_core.serving.conversation import chat_request, plain_tools, think_of
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.chat import (
    NO_OPS,
    Answered,
    ChatBody,
    ChatChoice,
    ChatCompletion,
)
from mstar_core.serving.protocol.reading import body_of, check_model, unsupported
from mstar_core.serving.routes import Route
from mstar_core.serving.scores import chat_logprobs


async def chat(exchange: Exchange) -> Response:
    """Answer a conversation."""
    front, _ = exchange.service.loaded()
    body: ChatBody = await body_of(exchange, ChatBody, NO_OPS)
    check_model(exchange, body.model)
    _check_offered(body)
    n = asking.num_choices(exchange, body)
    tools = plain_tools(body.tools or ()) if body.tool_choice != "none" else []
    think = think_of(body.chat_template_kwargs or {}, body.reasoning_effort)
    options = asking.options_of(front, body, (body.top_logprobs or 0) if body.logprobs else None)
    request = await chat_request(exchange, body.messages, tools, think, options)
    request = asking.bounded(exchange, request, body, _asked(body))

    def write(wholes: Sequence[Whole], made: Mapping[str, Any]) -> ChatCompletion:
        return ChatCompletion(choices=[_choice(exchange, body, whole) for whole in wholes], **made)

    choices = choices_of(front, body, [request], n, lambda own: front.answer(own, tools))
    return await answered(exchange, body, choices, ChatChunks, write, "chatcmpl")


def _asked(body: ChatBody) -> int | None:
    """The most new tokens, by either name. Raises ApiError where the two do not agree."""
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        message = f"`max_tokens` is {old} and `max_completion_tokens` {new}; send one of them."
        raise ApiError("invalid_value", message, param="max_completion_tokens")
    return old if new is None else new


def _check_offered(body: ChatBody) -> None:
    """Raise ApiError for what the fields can say and the server cannot do."""
    if body.response_format is not None and body.response_format.type != "text":
        raise unsupported("response_format", "Only text is offered; no grammar holds the answer")
    if body.tool_choice not in (None, "none", "auto"):
        raise unsupported("tool_choice", "Only none and auto are offered")
    if body.top_logprobs is not None and not body.logprobs:
        message = "`top_logprobs` needs `logprobs: true`."
        raise ApiError("invalid_value", message, param="top_logprobs")


def _choice(exchange: Exchange, body: ChatBody, whole: Whole) -> ChatChoice:
    front, _ = exchange.service.loaded()
    choice = whole.choice
    said = Answered(
        content=whole.content if whole.content or not whole.calls else None,
        reasoning_content=whole.reasoning or UNSET,
        tool_calls=[made_call(call) for call in whole.calls] or UNSET,
    )
    return ChatChoice(
        index=choice.index,
        message=said,
        logprobs=chat_logprobs(front, whole.scored) if body.logprobs else None,
        finish_reason=choice.finish,  # type: ignore[arg-type]  # it is over
        stop_reason=choice.stop,
    )


CODES = (
    "not_ready",
    "model_not_found",
    "missing_field",
    "unsupported_field",
    "unknown_field",
    "context_length_exceeded",
    "limit_exceeded",
    "overloaded",
    "cancelled",
    "request_failed",
    "engine_restarted",
)
"""Codes of every route that generates text."""

ROUTES = (
    Route(
        method="POST",
        path="/v1/chat/completions",
        handler=chat,
        summary="Answer a conversation",
        capability="chat",
        body=ChatBody,
        answer=ChatCompletion,
        streams=True,
        codes=CODES,
    ),
)
