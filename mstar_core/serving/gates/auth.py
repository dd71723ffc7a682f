"""Who may call: everybody where there are no keys, else those who have one; default deny."""

from __future__ import annotations

from starlette.responses import Response

from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.keys import Keys


class Auth:
    """Asks for ``Authorization: Bearer KEY``, except on routes that are declared open."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def __call__(self, exchange: Exchange) -> Response | None:
        """Raises ApiError ``invalid_api_key``."""
        if not self._keys or (exchange.route is not None and exchange.route.open):
            return None
        given = exchange.http.headers.getlist("authorization")
        scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        label = self._keys.label(key.strip())
        if scheme.lower() != "bearer" or label is None:
            exchange.headers["www-authenticate"] = "Bearer"
            raise ApiError("invalid_api_key", "A valid API key is needed: Authorization: Bearer …")
        exchange.key = label
        return None
