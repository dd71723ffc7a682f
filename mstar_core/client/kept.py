"""What both clients are made of: their settings, and connections that wait for the next call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mstar_core.client.http1 import Head
from mstar_core.client.settings import Settings

if TYPE_CHECKING:
    import ssl


class Closable(Protocol):
    """A connection, to a client that keeps it."""

    def is_stale(self) -> bool:
        """Whether the server has closed it meanwhile."""
        ...

    def close(self) -> None:
        """Close it. Idempotent."""
        ...


C = TypeVar("C", bound=Closable)


class Kept(Generic[C]):
    """Connections to one server; any thread may take one and give it back."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        model: str | None = None,
        api_key: str | None = None,
        connect_s: float = 5.0,
        read_s: float = 600.0,
        retries: int = 2,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """See :class:`~mstar_core.client.settings.Settings`. Raises ConfigError for a bad URL."""
        self.settings = Settings(
            base_url=base_url,
            model=model,
            api_key=api_key,
            connect_s=connect_s,
            read_s=read_s,
            retries=retries,
            tls=tls,
        )
        self._idle: list[C] = []
        self._closed = False

    def close(self) -> None:
        """Close the connections that are kept. Idempotent."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _take_kept(self) -> C | None:
        """One that is still open; None where none is kept."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    def _keep(self, connection: C, head: Head) -> None:
        """Keep it behind the answer ``head``, if the server does."""
        if head.keeps_alive and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
