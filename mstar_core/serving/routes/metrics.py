"""``/metrics`` of this API process, for Prometheus."""

from __future__ import annotations

from starlette.responses import Response

from mstar_core.serving.exchange import Exchange
from mstar_core.serving.metrics import MEDIA_TYPE
from mstar_core.serving.routes import Route


async def metrics(exchange: Exchange) -> Response:
    """The exposition; the engine's part is as of its last heartbeat."""
    service = exchange.service
    text = service.metrics.render(service.link.stats(), service.admission.open)
    return Response(text, headers={"content-type": MEDIA_TYPE})


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        summary="Counts and times, in Prometheus' text format",
        answer_media="text/plain",
    ),
)
