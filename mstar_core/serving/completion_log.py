"""One line in the log for each request to the model, at its end; never what was said in it.

The fields that a handler may fill in ``exchange.line`` are :data:`FIELDS`; the rest is known here.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from mstar_core.serving.exchange import Exchange

Outcome = Literal[
    "ok",
    "stop",
    "length",
    "tool_calls",
    "client_disconnect",
    "client_too_slow",
    "cancelled",
    "timeout",
    "error",
    "rejected",
]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
FIELDS = (
    "outcome",
    "code",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "audio_s",
    "audio_out_s",
    "queue_ms",
    "ttft_ms",
    "ttfa_ms",
)
"""``audio_s``: seconds of sound that came in; ``audio_out_s``: that went out. ``ttft_ms``,
``ttfa_ms``: from the request's arrival until the first token or the first sound was there.
``queue_ms``: at the engine's door, until it was let in (of several choices, the first)."""
CLIENT_GONE = 499
"""The status in the line of a request whose client left before the answer began."""

_of_code = {
    "request_timeout": "timeout",
    "cancelled": "cancelled",
    "client_too_slow": "client_too_slow",
}
_log = logging.getLogger("mstar_core.serving.requests")


def outcome_of(code: str, status: int) -> str:
    """The outcome of a request that ended with an error ``code`` of ``serving.errors``."""
    return _of_code.get(code, "error" if status >= 500 else "rejected")


def fields_of(exchange: Exchange, status: int) -> dict[str, Any]:
    """The line as a flat mapping; values are numbers, ids and words of closed sets."""
    total_ms = (time.perf_counter() - exchange.started) * 1000
    return {
        "id": exchange.id,
        "route": exchange.route.path if exchange.route else "none",
        "status": status,
        **{name: exchange.line[name] for name in FIELDS if name in exchange.line},
        "total_ms": total_ms,
        **({"key": exchange.key} if exchange.key else {}),
    }


def write(fields: dict[str, Any], *, is_model_route: bool) -> None:
    """Write it: at INFO for a route of the model, at DEBUG for the others.

    The record has the mapping as ``fields``, for a formatter that writes JSON.
    """
    level = logging.INFO if is_model_route else logging.DEBUG
    if _log.isEnabledFor(level):
        rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in fields.items()}
        text = " ".join(f"{name}={value}" for name, value in rounded.items())
        _log.log(level, "request %s", text, extra={"fields": rounded})
