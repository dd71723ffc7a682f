"""Ending a request from outside, by its ``x-request-id``."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen
from starlette.responses import Response

from mstar_core.serving.codec import Meta, to_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange, group_of
from mstar_core.serving.protocol.fields import BIG
from mstar_core.serving.routes import Route


@frozen(kw_only=True)
class Cancelled:
    """What a cancel ended."""

    id: Annotated[str, Meta(max_length=128)]
    cancelled: Annotated[int, Meta(ge=1, le=BIG)]
    """Generations that were ended; a request of ``n`` choices has ``n``."""


async def cancel(exchange: Exchange) -> Response:
    """End the caller's own request ``id``. Raises ApiError ``request_not_found``."""
    name = exchange.http.path_params["id"]
    count = await exchange.service.link.cancel(group_of(exchange.key, name))
    if not count:
        raise ApiError("request_not_found", "No open request of this key has that id.", param="id")
    return Response(to_json(Cancelled(id=name, cancelled=count)), media_type="application/json")


ROUTES = (
    Route(
        method="POST",
        path="/v1/requests/{id}/cancel",
        handler=cancel,
        summary="End an open request by its x-request-id",
        answer=Cancelled,
        codes=("request_not_found",),
    ),
)
