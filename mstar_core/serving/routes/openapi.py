"""``/openapi.json``."""

from __future__ import annotations

from functools import cache

from starlette.responses import Response

from mstar_core.serving.codec import to_json
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.openapi import openapi
from mstar_core.serving.routes import Route
from mstar_core.serving.routes.table import all_routes


async def show(exchange: Exchange) -> Response:
    """The routes that the served model has; all of them while it is not known."""
    card = exchange.service.card
    return Response(document(None if card is None else card.capabilities), media_type=_JSON)


@cache
def document(capabilities: frozenset[str] | None) -> bytes:
    """The document for a model of these capabilities."""
    offered = [
        route
        for route in all_routes()
        if capabilities is None or route.capability is None or route.capability in capabilities
    ]
    return to_json(openapi(offered))


_JSON = "application/json"
ROUTES = (
    Route(
        method="GET",
        path="/openapi.json",
        handler=show,
        summary="This document",
        answer_media=_JSON,
    ),
)
