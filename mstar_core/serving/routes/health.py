"""``/live``: the process answers. ``/ready``: requests are taken, and if not, how far it is."""

from __future__ import annotations

from typing import Annotated, Any

from attrs import frozen
from starlette.responses import Response

from mstar_core.serving.codec import Meta, to_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.fields import BIG
from mstar_core.serving.reply import error_response
from mstar_core.serving.routes import Route


@frozen(kw_only=True)
class Live:
    """The API process answers."""

    status: Annotated[str, Meta(pattern="^live$")] = "live"


@frozen(kw_only=True)
class Row:
    """One stretch of the server's start."""

    who: Annotated[str, Meta(max_length=16)]
    """``command``, ``engine``, ``api`` or ``other``."""
    phase: Annotated[str, Meta(max_length=64)]
    seconds: Annotated[float, Meta(ge=0, le=1e6)]


@frozen(kw_only=True)
class StartUp:
    """Where the time of the server's start went; the seconds of ``rows`` add up."""

    schema: Annotated[int, Meta(ge=1, le=1000)]
    total_s: Annotated[float, Meta(ge=0, le=1e6)]
    rows: Annotated[tuple[Row, ...], Meta(max_length=64)]
    meanwhile: Annotated[tuple[Row, ...], Meta(max_length=64)]
    """What went on beside them."""


@frozen(kw_only=True)
class Ready:
    """Where the engine is."""

    phase: Annotated[str, Meta(max_length=64)]
    """``ready`` in a 200; ``starting``, a phase of the warmup, ``stalled``, … in a 503."""
    done: Annotated[int, Meta(ge=0, le=BIG)]
    """Parts of the phase that are done, of ``total``."""
    total: Annotated[int, Meta(ge=0, le=BIG)]
    eta_s: Annotated[float, Meta(ge=0, le=BIG)] | None
    """Seconds until it may be ready; null where nobody knows."""
    start_up: StartUp | None = None
    """In a 200."""


async def live(exchange: Exchange) -> Response:
    """200 for as long as this process runs, also while it drains."""
    return Response(to_json(Live()), media_type="application/json")


async def ready(exchange: Exchange) -> Response:
    """200 when requests are taken; else 503 with the phase, beside the error."""
    state = exchange.service.link.state
    is_loaded = exchange.service.front is not None and exchange.service.card is not None
    phase = "starting" if state.is_ready and not is_loaded else state.phase
    told = Ready(phase=phase, done=state.done, total=state.total, eta_s=state.eta_s)
    if phase == "ready":
        whole = {**facts_of(told), "start_up": exchange.service.start_up}
        return Response(to_json(whole), media_type="application/json")
    code = "draining" if phase == "draining" else "not_ready"
    message = f"The server takes no requests; its phase is {phase}."
    error = ApiError(code, message, retry_after_s=state.eta_s or 1)
    answer = error_response(error)
    answer.body = to_json({**error.body(), **facts_of(told)})
    answer.headers["content-length"] = str(len(answer.body))
    return answer


def facts_of(told: Ready) -> dict[str, Any]:
    """The same as a plain mapping."""
    return {"phase": told.phase, "done": told.done, "total": told.total, "eta_s": told.eta_s}


ROUTES = (
    Route(
        method="GET",
        path="/live",
        handler=live,
        summary="Whether the process answers",
        answer=Live,
        open=True,
    ),
    Route(
        method="GET",
        path="/ready",
        handler=ready,
        summary="Whether requests are taken, and if not, how far it is",
        answer=Ready,
        codes=("not_ready", "draining"),
    ),
)
