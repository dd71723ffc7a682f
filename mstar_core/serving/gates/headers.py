"""How many headers a request may have, and which of its bodies are refused unread."""

from __future__ import annotations

from starlette.responses import Response

from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange

MOST = 64


def few_headers(exchange: Exchange) -> Response | None:
    """Raises ApiError ``limit_exceeded`` for more than 64 headers."""
    if len(exchange.http.scope["headers"]) > MOST:
        raise ApiError("limit_exceeded", f"The request has more than {MOST} headers.")
    return None
