"""One HTTP request on its way through the server, and what the server is made of."""

from __future__ import annotations

import time
from typing import Any

from attrs import define, field, frozen
from starlette.requests import Request as HttpRequest

from mstar_core.config.limits import LimitsConfig
from mstar_core.model.front import Front
from mstar_core.serving.errors import ApiError
from mstar_core.serving.link import Link


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
    card: ModelCard | None = None
    front: Front | None = None

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
    started: float = field(factory=time.perf_counter)
    line: dict[str, Any] = field(factory=dict)
    """Fields of the completion line: tokens, outcome, ttft_ms, …; numbers and closed words only."""

    @property
    def group(self) -> str:
        """The name by which its engine requests are cancelled: a key cancels only its own."""
        return f"{self.key}/{self.id}"
