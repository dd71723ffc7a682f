"""What can go wrong between a program and a server, as facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define

from mstar_core.errors import MstarError, Words


@define(kw_only=True, eq=False)
class ClientError(MstarError):
    """A call that did not give its result; the client itself is still good."""

    request_id: str | None = None
    """The server's name for the request, where it got that far."""


@define(kw_only=True, eq=False)
class ApiError(ClientError):
    """The server refused, or failed, and said so."""

    status: int
    """The HTTP status; 200 for an error that came inside a stream."""
    message: str
    kind: str = ""
    """The error's ``type``, such as ``invalid_request_error``."""
    code: str | None = None
    """A stable word for machines, such as ``rate_limit_exceeded``."""
    param: str | None = None
    """The field that is wrong."""
    retry_after: float | None = None
    """Seconds after which the server asks to be asked again."""


@define(kw_only=True, eq=False)
class ConnectFailed(ClientError):
    """Nobody answers at the address. The request was not sent."""


@define(kw_only=True, eq=False)
class ConnectionLost(ClientError):
    """An answer, or a stream of events, that ended before it was whole. Never a success."""


@define(kw_only=True, eq=False)
class TimedOut(ClientError):
    """Nothing came for longer than was allowed."""


@define(kw_only=True, eq=False)
class BadAnswer(ClientError):
    """The server's answer is not what its protocol says: no HTTP, no JSON, another shape."""


def api_error(
    where: str,
    status: int,
    body: Any,
    *,
    request_id: str | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """The error that ``body`` tells of: an OpenAI error object, a flat one, or any text."""
    told = body.get("error", body) if isinstance(body, Mapping) else body
    facts: Mapping[str, Any] = told if isinstance(told, Mapping) else {"message": str(told)}
    message = str(facts.get("message") or facts.get("detail") or f"HTTP status {status}")
    return ApiError(
        where=where,
        got=Words(f"{status}: {message}" if status != 200 else f"an error event: {message}"),
        want="an answer",
        fix=_fix(status, retry_after),
        status=status,
        message=message,
        kind=str(facts.get("type") or ""),
        code=_text_or_none(facts.get("code")),
        param=_text_or_none(facts.get("param")),
        request_id=request_id,
        retry_after=retry_after,
    )


def lost(where: str, got: str, request_id: str | None = None) -> ConnectionLost:
    """The error of an answer that stopped in the middle."""
    return ConnectionLost(
        where=where,
        got=Words(got),
        want="an answer up to its end",
        fix="take what came as incomplete; the server's log may say why",
        request_id=request_id,
    )


def bad_answer(where: str, got: str, want: str) -> BadAnswer:
    """The error of an answer that breaks its protocol."""
    fix = "check that the address is that of an OpenAI-compatible server"
    return BadAnswer(where=where, got=Words(got), want=want, fix=fix)


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _fix(status: int, retry_after: float | None) -> str:
    if retry_after is not None:
        return f"ask again after {retry_after:g} s"
    if status in (401, 403):
        return "give the server's key as api_key"
    return "change what the message names" if 400 <= status < 500 else "see the server's log"
