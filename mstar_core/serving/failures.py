"""Why a generation did not end by itself, as its client is told."""

from __future__ import annotations

from mstar_core.serving.errors import ApiError, of_facts
from mstar_core.serving.link import Ended

_SAID = {
    "cancelled": "The request was cancelled.",
    "draining": "The server is about to end.",
    "client_too_slow": "The client did not read the sound that waited for it.",
    "overloaded": "The engine has as many requests that wait as it takes.",
    "engine_restarted": "The engine was started again while the request ran; send it again.",
    "request_failed": "The request failed in the engine.",
}


def failure(ended: Ended) -> ApiError | None:
    """What the client is told of a generation that did not end by itself; None for one that did."""
    if ended.code is None and ended.reason in ("stop", "length"):
        return None
    own = "request_failed" if ended.error is None else "invalid_value"
    code = ended.code or ("cancelled" if ended.reason == "abort" else own)
    if code == "overloaded":
        return ApiError(code, _SAID[code], retry_after_s=1)
    if ended.error is not None:
        return of_facts(ended.error, code)
    return ApiError(code, _SAID.get(code, _SAID["request_failed"]))
