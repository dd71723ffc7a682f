"""What a client is told when a request cannot be served: a stable code and a fixed shape.

``{"error": {"message", "type", "param", "code"}}`` always, in a body and inside a stream. A message
never holds the text of an exception that we did not write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mstar_core.errors import RequestError

CODES: dict[str, tuple[int, str]] = {
    "invalid_json": (400, "invalid_request_error"),
    "invalid_value": (400, "invalid_request_error"),
    "missing_field": (400, "invalid_request_error"),
    "unsupported_field": (400, "invalid_request_error"),
    "unknown_field": (400, "invalid_request_error"),
    "limit_exceeded": (400, "invalid_request_error"),
    "context_length_exceeded": (400, "invalid_request_error"),
    "empty_prompt": (400, "invalid_request_error"),
    "invalid_audio": (400, "invalid_request_error"),
    "audio_too_long": (400, "invalid_request_error"),
    "media_not_allowed": (400, "invalid_request_error"),
    "invalid_host": (400, "invalid_request_error"),
    "origin_not_allowed": (403, "invalid_request_error"),
    "invalid_api_key": (401, "authentication_error"),
    "route_not_found": (404, "invalid_request_error"),
    "route_not_offered": (404, "invalid_request_error"),
    "model_not_found": (404, "invalid_request_error"),
    "request_not_found": (404, "invalid_request_error"),
    "method_not_allowed": (405, "invalid_request_error"),
    "request_timeout": (408, "timeout_error"),
    "body_too_large": (413, "invalid_request_error"),
    "unsupported_media_type": (415, "invalid_request_error"),
    "rate_limit_exceeded": (429, "rate_limit_error"),
    "overloaded": (429, "rate_limit_error"),
    "cancelled": (499, "request_error"),
    "client_too_slow": (499, "request_error"),
    "request_failed": (500, "server_error"),
    "internal_error": (500, "server_error"),
    "not_ready": (503, "server_error"),
    "draining": (503, "server_error"),
    "engine_restarted": (503, "server_error"),
}
"""Code → (HTTP status, type). ``docs/errors.md`` lists them; none is ever renamed."""

_ADDRESS = re.compile(r"( object)?( at)? ?0x[0-9a-fA-F]{6,}")
_SHOWN = 300
"""Characters of what was given that a message repeats."""


class ApiError(Exception):
    """One HTTP request cannot be served."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.type = CODES[code]
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        """The JSON object that the client reads."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def of_request_error(error: RequestError, code: str = "invalid_value") -> ApiError:
    """A request that a front or the engine's door refused: its facts are about the request."""
    return of_facts(error.facts(), code)


def of_facts(facts: Mapping[str, str], code: str = "invalid_value") -> ApiError:
    """The same, of the facts that crossed a process; what was given is told in short."""
    want = f"; allowed: {facts['want']}" if facts["want"] else ""
    fix = f". To fix it, {facts['fix']}" if facts["fix"] else ""
    message = f"{facts['where']}: {_in_short(facts['got'])}{want}{fix}."
    return ApiError(code, message, param=facts["where"])


def _in_short(got: str) -> str:
    """``got`` without addresses of objects, and not longer than anybody reads."""
    told = _ADDRESS.sub("…", got)
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}…"
