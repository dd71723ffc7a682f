"""``/v1/models``: the model that is served, what it takes and gives, and its limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from attrs import frozen
from starlette.responses import Response

from mstar_core.serving.codec import Meta, to_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange, ModelCard
from mstar_core.serving.protocol.fields import BIG
from mstar_core.serving.routes import Route
from mstar_core.serving.routes.table import all_routes

Word = Annotated[str, Meta(max_length=256)]
Words = Annotated[tuple[Word, ...], Meta(max_length=1024)]
IN = {"text": "text", "chat": "text", "audio": "audio", "speech": "text"}
OUT = {"text": "text", "chat": "text", "audio": "text", "speech": "audio"}
"""Capability → what goes in, and what comes out."""


@frozen(kw_only=True)
class Modalities:
    """Kinds of what goes in and comes out: text, audio."""

    input: Words
    output: Words


@frozen(kw_only=True)
class Limits:
    """What one request may ask for."""

    max_context: Annotated[int, Meta(ge=1, le=BIG)]
    """Tokens of prompt and answer together."""
    max_prompt_tokens: Annotated[int, Meta(ge=1, le=BIG)] | None
    max_new_tokens: Annotated[int, Meta(ge=1, le=BIG)] | None
    max_choices: Annotated[int, Meta(ge=1, le=BIG)]
    max_body_bytes: Annotated[int, Meta(ge=1, le=BIG)]
    max_audio_seconds: Annotated[float, Meta(gt=0, le=BIG)]


@frozen(kw_only=True)
class Model:
    """One served model."""

    id: Word
    object: Literal["model"] = "model"
    created: Annotated[int, Meta(ge=0, le=BIG)]
    owned_by: Word = "mstar"
    max_model_len: Annotated[int, Meta(ge=1, le=BIG)]
    modalities: Modalities
    routes: Words
    limits: Limits
    traits: Annotated[dict[str, Any], Meta(max_length=64)]
    """What the model says of itself: languages, voices, sample_rate, …"""


@frozen(kw_only=True)
class Models:
    """The list, of one."""

    object: Literal["list"] = "list"
    data: Annotated[tuple[Model, ...], Meta(max_length=64)]


async def models(exchange: Exchange) -> Response:
    """Raises ApiError ``not_ready`` before the model is known."""
    _, card = exchange.service.loaded()
    listed = Models(data=(model_of(exchange, card),))
    return Response(to_json(listed), media_type="application/json")


async def model(exchange: Exchange) -> Response:
    """Raises ApiError ``model_not_found``, or ``not_ready`` before the model is known."""
    _, card = exchange.service.loaded()
    if exchange.http.path_params["id"] != card.name:
        raise ApiError("model_not_found", "No such model; see /v1/models.", param="id")
    return Response(to_json(model_of(exchange, card)), media_type="application/json")


def model_of(exchange: Exchange, card: ModelCard) -> Model:
    """``card`` as clients read it."""
    able, limits = card.capabilities, exchange.service.limits
    routes = sorted({r.path for r in all_routes() if r.capability in able})
    return Model(
        id=card.name,
        created=card.created,
        max_model_len=card.max_context,
        modalities=Modalities(
            input=tuple(sorted({IN[c] for c in able})), output=tuple(sorted({OUT[c] for c in able}))
        ),
        routes=tuple(routes),
        limits=Limits(
            max_context=card.max_context,
            max_prompt_tokens=limits.max_prompt_tokens,
            max_new_tokens=limits.max_new_tokens,
            max_choices=limits.max_choices,
            max_body_bytes=limits.max_body_bytes,
            max_audio_seconds=limits.max_audio_seconds,
        ),
        traits=dict(card.traits),
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/models",
        handler=models,
        summary="The models that are served",
        answer=Models,
        codes=("not_ready",),
    ),
    Route(
        method="GET",
        path="/v1/models/{id:path}",
        handler=model,
        summary="One model",
        answer=Model,
        codes=("model_not_found", "not_ready"),
    ),
)
