"""Which web pages may read our answers: those of the listed origins, and none by default.

Credentials (cookies) are never allowed; a key is sent in a header by the page itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response

from mstar_core.serving.exchange import Exchange

METHODS = "GET, POST"
HEADERS = "authorization, content-type, x-request-id, *"
"""The star is for the headers that client libraries add; it does not stand for the first."""
EXPOSED = (
    "x-request-id, x-mstar-warning, retry-after, x-ratelimit-limit-requests, "
    "x-ratelimit-remaining-requests, x-ratelimit-reset-requests"
)


class Cors:
    """Adds the headers for an allowed origin, and answers its preflight requests."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origins)

    def __call__(self, exchange: Exchange) -> Response | None:
        if not self._origins:
            return None
        exchange.headers["vary"] = "Origin"
        headers = exchange.http.headers
        origin = headers.get("origin")
        if origin is None or not ({origin, "*"} & self._origins):
            return None
        exchange.headers["access-control-allow-origin"] = "*" if "*" in self._origins else origin
        exchange.headers["access-control-expose-headers"] = EXPOSED
        if exchange.http.method != "OPTIONS" or "access-control-request-method" not in headers:
            return None
        exchange.headers["access-control-allow-methods"] = METHODS
        exchange.headers["access-control-allow-headers"] = HEADERS
        exchange.headers["access-control-max-age"] = "600"
        return Response(status_code=204)
