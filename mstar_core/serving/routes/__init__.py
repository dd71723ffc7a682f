"""Routes as data: what the application mounts and what ``/openapi.json`` describes.

Each module of this package has ``ROUTES``; a route that names a capability is mounted where the
loaded model's front has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from attrs import field, frozen
from starlette.responses import Response

from mstar_core.serving.exchange import Exchange

Handler = Callable[[Exchange], Awaitable[Response]]


@frozen(kw_only=True)
class Route:
    """One method of one path."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    summary: str
    capability: str | None = None
    """``text``, ``chat``, ``audio`` or ``speech``; None: always offered."""
    body: Any = None
    """Request type (attrs, every field constrained); None: no body."""
    form: bool = False
    """The body is ``multipart/form-data``, or else JSON; ``body`` describes the fields of both."""
    answer: Any = None
    """Response type, or a tuple of those there are; None: not JSON (``answer_media``)."""
    answer_media: str = "application/json"
    also: tuple[str, ...] = field(default=())
    """Media types that a request may ask for instead."""
    streams: bool = False
    """May answer ``text/event-stream`` as well."""
    codes: tuple[str, ...] = field(default=())
    """Codes of ``serving.errors`` that this route in particular may give."""
    open: bool = False
    """Needs no key."""
