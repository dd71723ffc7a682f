"""Without API keys: only requests that were meant for this server, and sent by no foreign page.

A browser on this machine reaches a server that others cannot. A page can point a name of its own at
127.0.0.1 (DNS rebinding), which shows in ``Host``; or post a form across origins, which shows in
``Origin``. With keys neither helps an attacker, and proxies may use any name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.responses import Response

from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange


class Hosts:
    """Lets on what names this machine, an address, or one of ``names`` as its host."""

    def __init__(self, names: Iterable[str], origins: Iterable[str]) -> None:
        self._names = frozenset(name.lower() for name in (*names, "localhost"))
        self._origins = frozenset(origins)

    def __call__(self, exchange: Exchange) -> Response | None:
        """Raises ApiError ``invalid_host`` or ``origin_not_allowed``.

        ``/live`` may be asked without a host, as load balancers do over HTTP/1.0.
        """
        headers = exchange.http.headers
        hosts = headers.getlist("host")
        if not hosts and exchange.http.scope["path"] == "/live":
            return None
        if len(hosts) != 1 or not self._knows(name_of(hosts[0])):
            raise ApiError(
                "invalid_host",
                "The host of the request is no name of this server; server.allowed_hosts adds one.",
            )
        origin = headers.get("origin")
        if origin is None or {origin, "*"} & self._origins or _is_own(origin, hosts[0]):
            return None
        raise ApiError(
            "origin_not_allowed",
            "Pages of this origin may not call the server; --cors-origin allows one.",
        )

    def _knows(self, name: str) -> bool:
        return name in self._names or _is_address(name)


def name_of(host: str) -> str:
    """The name in a ``Host`` header, in lower case; empty for what is no host and port."""
    if set(host) & set("/\\@?# \t"):
        return ""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for what is no number
        return parts.hostname or ""
    except ValueError:
        return ""


def _is_own(origin: str, host: str) -> bool:
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and authority.lower() == host.lower()


def _is_address(name: str) -> bool:
    """An address cannot be pointed elsewhere, as a name can."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
