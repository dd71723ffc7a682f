"""Where a server is: a URL with or without ``/v1``, or a unix socket."""

from __future__ import annotations

from urllib.parse import urlsplit

from attrs import frozen

from mstar_core.errors import ConfigError

PORTS = {"http": 80, "https": 443}


@frozen(kw_only=True)
class Address:
    """One server, as a socket reaches it."""

    host: str = "localhost"
    port: int = 0
    tls: bool = False
    unix: str | None = None
    """The path of its socket; then host and port say nothing."""
    prefix: str = ""
    """What stands before every route, without ``/v1``."""

    @property
    def authority(self) -> str:
        """The ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.unix is not None or self.port == PORTS["https" if self.tls else "http"]
        return host if usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.unix is not None:
            return f"unix:{self.unix}"
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def address_of(base_url: str) -> Address:
    """The address that ``base_url`` writes.

    ``http://host:port``, the same with ``/v1``, ``https://…``, or ``unix:/path/of.sock``. Raises
    ConfigError for anything else.
    """
    if base_url.startswith("unix:") and len(base_url) > len("unix:"):
        return Address(unix=base_url.removeprefix("unix:").removeprefix("//"))
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_address(base_url) from None
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    printable = base_url.isascii() and base_url.isprintable() and " " not in base_url
    if parts.scheme not in PORTS or not host or not plain or not printable:
        raise _no_address(base_url)
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    tls = parts.scheme == "https"
    return Address(host=host, port=port or PORTS[parts.scheme], tls=tls, prefix=prefix)


def _no_address(got: str) -> ConfigError:
    return ConfigError(
        where="base_url",
        got=got,
        want="http://HOST:PORT, the same with /v1, https://HOST, or unix:PATH",
        fix="write for example http://127.0.0.1:8000",
    )
