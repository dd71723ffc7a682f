"""One HTTP request on its way through the server, and what the server is made of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, field, frozen
from starlette.requests import Request as HttpRequest

from mstar_core.config.limits import LimitsConfig
from mstar_core.config.server import ServerConfig
from mstar_core.model.front import Front
from mstar_core.serving.admission import Admission, Ticket
from mstar_core.serving.errors import ApiError
from mstar_core.serving.link import Link
from mstar_core.serving.media.decoder import Decoder
from mstar_core.serving.media.fetch import Fetcher
from mstar_core.serving.metrics import Metrics
from mstar_core.serving.peers import Peers

if TYPE_CHECKING:
    from mstar_core.serving.routes import Route


@frozen(kw_only=True)
class ModelCard:
    """What ``/v1/models`` says of the served model."""

    name: str
    """The ``id`` that clients send as ``model``."""
    capabilities: frozenset[str]
    max_context: int
    """Tokens of prompt and answer together."""
    created: int
    """Unix seconds."""
    traits: dict[str, Any] = field(factory=dict)
    """``Front.traits()``: languages, voices, sample_rate, max_audio_seconds, …"""


@define(kw_only=True, eq=False)
class Service:
    """What every route needs; one in each API process. ``front`` is None at first."""

    limits: LimitsConfig
    link: Link
    server: ServerConfig = field(factory=ServerConfig)
    card: ModelCard | None = None
    front: Front | None = None
    metrics: Metrics = field(factory=Metrics)
    peers: Peers | None = None
    """The other API processes; None: there are none."""
    start_up: dict[str, Any] | None = None
    """``startup.StartUp.as_dict`` of the server's start, once it is over."""
    admission: Admission = field(
        default=Factory(lambda self: Admission(self.limits, self.server.processes), takes_self=True)
    )

    decoder: Decoder = field(default=Factory(lambda self: Decoder(self.limits), takes_self=True))
    fetcher: Fetcher = field(
        default=Factory(lambda self: Fetcher(self.server.media_hosts, self.limits), takes_self=True)
    )

    def close(self) -> None:
        """End the process that decodes sound, if there is one."""
        self.decoder.close()

    def loaded(self) -> tuple[Front, ModelCard]:
        """The front and the card. Raises ApiError ``not_ready`` while they are not there yet."""
        if self.front is None or self.card is None:
            raise ApiError("not_ready", "The server is starting; see /ready.", retry_after_s=1)
        return self.front, self.card


@define(kw_only=True, eq=False)
class Exchange:
    """One HTTP request: what came, and what its completion line will say."""

    service: Service
    http: HttpRequest
    id: str
    """``x-request-id``: the client's own where it is sane, else ours."""
    key: str = ""
    """Label of the API key used (its position in the list); empty where none is needed."""
    route: Route | None = None
    """None: no route has this path."""
    ticket: Ticket | None = None
    """Its place in the server; held by requests to the model."""
    started: float = field(factory=time.perf_counter)
    headers: dict[str, str] = field(factory=dict)
    """Headers, in lower case, that the answer gets whoever makes it."""
    line: dict[str, Any] = field(factory=dict)
    """Fields of the completion line (:mod:`mstar_core.serving.completion_log`)."""

    @property
    def group(self) -> str:
        """The name by which its engine requests are cancelled: a key cancels only its own."""
        return group_of(self.key, self.id)

    def admit(self, *, tokens: int = 0, audio_s: float = 0.0) -> None:
        """Count what this request asks for (prompt and new tokens, seconds of sound) until its end.

        Call it before the first ``submit``. Raises ApiError ``overloaded`` or ``limit_exceeded``.
        """
        if self.ticket is not None:
            self.ticket.take(tokens=tokens, audio_s=audio_s)


def group_of(key: str, request_id: str) -> str:
    """The name of one key's request inside the engine."""
    return f"{key}/{request_id}"
