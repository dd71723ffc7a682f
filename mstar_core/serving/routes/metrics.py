"""``/metrics`` of the whole server, for Prometheus, whichever API process is asked."""

from __future__ import annotations

from starlette.responses import Response

from mstar_core.serving.exchange import Exchange
from mstar_core.serving.merged_metrics import merge
from mstar_core.serving.metrics import MEDIA_TYPE
from mstar_core.serving.routes import Route


async def metrics(exchange: Exchange) -> Response:
    """The exposition; the engine's part is as of its last heartbeat."""
    service = exchange.service
    text = service.metrics.render(service.link.stats(), service.admission.open)
    others = [] if service.peers is None else await service.peers.expositions()
    if others:
        text = merge([text, *others])
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
