"""Sound from a URL: the one way from this server to another, and closed unless hosts are named.

A URL is parsed once, by one expression that allows little. Its name is resolved once, every address
is checked, and the connection goes to a checked address, with the certificate checked for the name:
nothing is looked up a second time. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable

from mstar_core.client.errors import ClientError
from mstar_core.client.http1 import END, Head, ResponseParser
from mstar_core.config.limits import LimitsConfig
from mstar_core.serving.errors import ApiError
from mstar_core.serving.media.addresses import is_public

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Name and port to numeric addresses. Raises OSError."""
_URL = re.compile(
    r"[hH][tT][tT][pP][sS]://"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[A-Za-z0-9/._~!$&'()*+,;=:@%-]*)?"
    r"(?P<query>\?[A-Za-z0-9/?._~!$&'()*+,;=:@%-]*)?"
)
_MAX_URL = 2048
_PIECE = 64 << 10


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Fetcher:
    """Fetches from the ``hosts`` that the operator named (``name`` or ``name:port``)."""

    def __init__(
        self,
        hosts: Iterable[str],
        limits: LimitsConfig,
        *,
        resolve: Resolve = resolve,
        is_allowed: Callable[[str], bool] = is_public,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        """``is_allowed`` says of a numeric address whether it may be connected to."""
        named = (host.lower() for host in hosts)
        self._hosts = frozenset(host if ":" in host else f"{host}:443" for host in named)
        self._limits = limits
        self._resolve = resolve
        self._is_allowed = is_allowed
        self._trust = trust

    async def fetch(self, url: str) -> int:
        """Descriptor of the bytes behind ``url``, in memory; the caller closes it.

        Raises ApiError: ``media_not_allowed`` where it may not be asked, ``limit_exceeded`` for
        more than ``limits.max_body_bytes``, ``invalid_value`` where it cannot be had in
        ``limits.media_timeout_s``.
        """
        host, port, target = self._parsed(url)
        try:
            async with asyncio.timeout(self._limits.media_timeout_s):
                address = await self._address(host, port)
                reader, writer = await asyncio.open_connection(
                    address, port, ssl=self._trust(), server_hostname=host
                )
                try:
                    writer.write(_request(host, port, target))
                    return await self._body(reader)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise _failed("does not come in time") from None
        except (OSError, ClientError):  # no name, no connection, no certificate, no HTTP
            raise _failed("cannot be fetched") from None

    def _parsed(self, url: str) -> tuple[str, int, str]:
        """Host, port and target. Raises ApiError ``media_not_allowed``."""
        if not self._hosts:
            raise _barred("This server does not fetch sound: send it as `file`.")
        match = _URL.fullmatch(url) if len(url) <= _MAX_URL else None
        if match is None:
            raise _barred("Only plain https URLs are fetched.")
        host, port = match["host"].lower(), int(match["port"] or 443)
        if f"{host}:{port}" not in self._hosts:
            raise _barred("This server does not fetch sound from that host.")
        return host, port, (match["path"] or "/") + (match["query"] or "")

    async def _address(self, host: str, port: int) -> str:
        """A checked address: where one of a name's addresses may not be asked, none is."""
        addresses = await self._resolve(host, port)
        if not addresses or not all(map(self._is_allowed, addresses)):
            raise _barred("This server does not fetch sound from where that host is.")
        return addresses[0]

    async def _body(self, reader: asyncio.StreamReader) -> int:
        file = os.memfd_create("fetched", os.MFD_CLOEXEC)
        try:
            await self._receive(reader, file)
        except BaseException:
            os.close(file)
            raise
        return file

    async def _receive(self, reader: asyncio.StreamReader, file: int) -> None:
        parser, size = ResponseParser("the media host"), 0
        while True:
            data = await reader.read(_PIECE)
            for item in parser.feed(data) if data else parser.eof():
                if item is END:
                    return
                if isinstance(item, Head):
                    _check(item)
                elif isinstance(item, bytes):
                    size += len(item)
                    self._check_size(size)
                    os.write(file, item)

    def _check_size(self, size: int) -> None:
        most = self._limits.max_body_bytes
        if size > most:
            message = f"What the URL names is larger than {most} bytes."
            raise ApiError("limit_exceeded", message, param="url")


def _request(host: str, port: int, target: str) -> bytes:
    name = host if port == 443 else f"{host}:{port}"
    lines = (
        f"GET {target} HTTP/1.1",
        f"host: {name}",
        "user-agent: mstar-core",
        "accept: audio/*, application/octet-stream",
        "accept-encoding: identity",
        "connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _check(head: Head) -> None:
    if 300 <= head.status < 400:
        raise _failed("is somewhere else, and redirects are not followed")
    if head.status != 200:
        raise _failed("is not given out")
    if head.headers.get("content-encoding", "identity").lower() != "identity":
        raise _failed("comes in an encoding that was not asked for")


def _barred(message: str) -> ApiError:
    return ApiError("media_not_allowed", message, param="url")


def _failed(what: str) -> ApiError:
    return ApiError("invalid_value", f"What the URL names {what}.", param="url")
