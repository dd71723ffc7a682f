"""What the two clients share: how a server is reached, and when a call is sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from mstar_core.client.address import Address, address_of
from mstar_core.client.errors import ConnectFailed, ConnectionLost, TimedOut, lost
from mstar_core.client.http1 import request_bytes
from mstar_core.client.reading import retry_after
from mstar_core.errors import Words

if TYPE_CHECKING:
    import ssl

    from mstar_core.client.calls import Sent
    from mstar_core.client.http1 import Head

MAX_WAIT_S = 30.0
"""A server that asks for a longer wait is not asked again."""
POLL_S = 0.1
"""Between two looks at whether a server is ready."""
READ_BYTES = 65536
"""Taken from a socket at once."""


@frozen(kw_only=True)
class Settings:
    """How to reach one server."""

    base_url: str
    model: str | None = None
    """Sent with every call that names none."""
    api_key: str | None = field(default=None, repr=False)
    connect_s: float = 5.0
    """Seconds in which a connection must be made."""
    read_s: float = 600.0
    """Seconds without a byte after which a call is given up."""
    retries: int = 2
    """How often a call is sent again that was answered with 429 or 503 and ``Retry-After``."""
    tls: ssl.SSLContext | None = None
    """In place of the system's own certificates, for https."""
    address: Address = field(init=False)

    @address.default
    def _address(self) -> Address:
        return address_of(self.base_url)

    def context(self) -> ssl.SSLContext | None:
        """What a connection is secured by; None where it is not."""
        if not self.address.tls:
            return None
        import ssl

        return self.tls or ssl.create_default_context()

    def bytes_of(self, sent: Sent) -> bytes:
        """A request as it goes over the wire. Raises RequestError for an id or key of odd signs."""
        headers = {"host": self.address.authority, "accept-encoding": "identity"}
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {self.api_key}"
        if sent.request_id is not None:
            headers["x-request-id"] = sent.request_id
        if sent.body:
            headers["content-type"] = sent.content_type
        return request_bytes(sent.method, self.address.prefix + sent.path, headers, sent.body)

    def wait_s(self, head: Head, attempt: int) -> float | None:
        """Seconds to wait before a call is sent again, behind the answer ``head``; None: never.

        Such an answer says that nothing was begun, so sending again repeats nothing.
        """
        after = retry_after(head)
        asked = head.status in (429, 503) and after is not None and after <= MAX_WAIT_S
        return after if asked and attempt < self.retries else None

    def unreachable(self, where: str, error: OSError) -> ConnectFailed:
        """The error where no connection could be made."""
        return ConnectFailed(
            where=where,
            got=Words(f"{self.address}: {error.strerror or error}"),
            want="a server that answers there",
            fix="start it, or correct base_url",
        )

    def timed_out(self, sent: Sent) -> TimedOut:
        """The error where nothing came for too long."""
        return TimedOut(
            where=sent.where,
            got=Words(f"nothing for {self.read_s:g} s"),
            want="an answer, or more of one",
            fix="give more time as read_s, or ask for less",
            request_id=sent.request_id,
        )

    def broken(self, sent: Sent, error: OSError) -> ConnectionLost:
        """The error where the connection broke before the answer was whole."""
        return lost(sent.where, f"{error.strerror or error}", sent.request_id)

    def not_ready(self, timeout_s: float, phase: str) -> TimedOut:
        """The error where a server did not become ready."""
        return TimedOut(
            where=f"{self.address}",
            got=Words(f"{phase} after {timeout_s:g} s"),
            want="a server that is ready",
            fix="see the server's log, or wait longer",
        )
