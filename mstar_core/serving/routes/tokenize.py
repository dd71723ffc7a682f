"""``/tokenize`` and ``/detokenize``: what a text is in ids, and ids in text."""

from __future__ import annotations

from starlette.responses import Response

from mstar_core.serving import asking
from mstar_core.serving.codec import to_json
from mstar_core.serving.conversation import chat_request, plain_tools, think_of
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.reading import body_of, check_model
from mstar_core.serving.protocol.tokens import (
    DetokenizeBody,
    Detokenized,
    TokenizeBody,
    Tokenized,
)
from mstar_core.serving.routes import Route


async def tokenize(exchange: Exchange) -> Response:
    """The ids of a text, or of a conversation."""
    front, card = exchange.service.loaded()
    body: TokenizeBody = await body_of(exchange, TokenizeBody, {})
    check_model(exchange, body.model)
    text = body.prompt
    if (text is None) == (body.messages is None):
        message = "Send `prompt` or `messages`, and one of them."
        raise ApiError("invalid_value", message, param="prompt")
    if text is not None:
        asking.check_size(exchange, len(text))
        ids = await asking.encoded(len(text), lambda: front.encode(text))
    else:
        think = think_of(body.chat_template_kwargs or {}, None)
        tools = plain_tools(body.tools or ())
        request = await chat_request(exchange, body.messages or [], tools, think, {})
        ids = request.arrays["ids"].tolist()
    made = Tokenized(tokens=ids, count=len(ids), max_model_len=card.max_context)
    return Response(to_json(made), media_type="application/json")


async def detokenize(exchange: Exchange) -> Response:
    """The text of ids."""
    front, _ = exchange.service.loaded()
    body: DetokenizeBody = await body_of(exchange, DetokenizeBody, {})
    check_model(exchange, body.model)
    if body.tokens:
        front.ids_request(body.tokens)  # refuses what is no id of the model
    text = await asking.encoded(len(body.tokens), lambda: front.decode(body.tokens))
    return Response(to_json(Detokenized(prompt=text)), media_type="application/json")


ROUTES = (
    Route(
        method="POST",
        path="/tokenize",
        handler=tokenize,
        summary="Text to token ids",
        capability="text",
        body=TokenizeBody,
        answer=Tokenized,
        codes=("not_ready", "model_not_found", "limit_exceeded"),
    ),
    Route(
        method="POST",
        path="/detokenize",
        handler=detokenize,
        summary="Token ids to text",
        capability="text",
        body=DetokenizeBody,
        answer=Detokenized,
        codes=("not_ready", "model_not_found"),
    ),
)
