"""From a server's JSON to results. An answer of another shape is a BadAnswer, never a KeyError."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from mstar_core.client.errors import ApiError, api_error, bad_answer
from mstar_core.client.http1 import Head
from mstar_core.client.results import Choice, Completion, Model, Readiness, Transcript, Usage


@frozen(kw_only=True)
class Reply:
    """A whole answer."""

    where: str
    head: Head
    body: bytes

    @property
    def request_id(self) -> str | None:
        """The server's name for the request."""
        return self.head.headers.get("x-request-id")

    def text(self) -> str:
        """The body, which is UTF-8. Raises BadAnswer where it is not."""
        try:
            return self.body.decode("utf-8")
        except UnicodeDecodeError:
            raise bad_answer(self.where, "a body that is no UTF-8", "text in UTF-8") from None

    def json(self) -> Mapping[str, Any]:
        """The body as a JSON object. Raises BadAnswer where it is none."""
        return object_of(self.where, self.text())

    def error(self) -> ApiError:
        """The error that this answer of another status than 200 tells of."""
        try:
            told = json.loads(self.body)
        except ValueError:
            told = self.body[:400].decode("utf-8", "replace")
        return api_error(
            self.where,
            self.head.status,
            told,
            request_id=self.request_id,
            retry_after=retry_after(self.head),
        )


def retry_after(head: Head) -> float | None:
    """Seconds of the ``Retry-After`` header; None without one, or with a date."""
    told = head.headers.get("retry-after", "")
    try:
        seconds = float(told)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def object_of(where: str, text: str) -> Mapping[str, Any]:
    """``text`` as a JSON object. Raises BadAnswer where it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        raise bad_answer(where, f"the text {text[:80]!r}", "JSON") from None
    return _mapping(where, value)


def usage_of(told: object) -> Usage:
    """Tokens as the server counted them; zeros where it did not."""
    if not isinstance(told, Mapping):
        return Usage()
    details = told.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return Usage(**{name: told.get(name) or 0 for name in names}, cached_tokens=cached or 0)


def completion_of(reply: Reply) -> Completion:
    """The answer of a chat or a completion."""
    raw = reply.json()
    choices = tuple(_choice(reply.where, each) for each in items_of(reply.where, raw, "choices"))
    if not choices:
        raise bad_answer(reply.where, "no choices", "one or more")
    return Completion(
        id=str(raw.get("id", "")),
        model=str(raw.get("model", "")),
        choices=choices,
        usage=usage_of(raw.get("usage")),
        request_id=reply.request_id,
        raw=raw,
    )


def _choice(where: str, told: Mapping[str, Any]) -> Choice:
    """A chat's choice has a message, a completion's a text."""
    message = _mapping(where, told.get("message", {}))
    return Choice(
        index=told.get("index", 0),
        text=message.get("content") or told.get("text") or "",
        finish_reason=told.get("finish_reason"),
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        tool_calls=tuple(message.get("tool_calls") or ()),
        logprobs=told.get("logprobs"),
    )


def transcript_of(reply: Reply) -> Transcript:
    """The answer of a transcription in any of its formats."""
    kind = reply.head.headers.get("content-type", "")
    if not kind.startswith("application/json"):
        return Transcript(text=reply.text(), request_id=reply.request_id)
    return transcript_from(reply.where, reply.json(), reply.request_id)


def transcript_from(where: str, raw: Mapping[str, Any], request_id: str | None) -> Transcript:
    """A transcript from its JSON object."""
    text = raw.get("text")
    if not isinstance(text, str):
        raise bad_answer(where, "no text", "an object with the field text")
    return Transcript(
        text=text,
        language=raw.get("language"),
        duration=raw.get("duration"),
        segments=tuple(raw.get("segments") or ()),
        words=tuple(raw.get("words") or ()),
        request_id=request_id,
        raw=raw,
    )


def models_of(reply: Reply) -> tuple[Model, ...]:
    """The list of models."""
    entries = items_of(reply.where, reply.json(), "data")
    return tuple(
        Model(id=str(each.get("id", "")), owned_by=str(each.get("owned_by", "")), raw=each)
        for each in entries
    )


def tokens_of(reply: Reply) -> tuple[int, ...]:
    """Token ids."""
    tokens = reply.json().get("tokens")
    if not isinstance(tokens, list):
        raise bad_answer(reply.where, "no tokens", "an object with the field tokens")
    return tuple(tokens)


def prompt_of(reply: Reply) -> str:
    """The text of token ids."""
    raw = reply.json()
    text = raw.get("prompt", raw.get("text"))
    if not isinstance(text, str):
        raise bad_answer(reply.where, "no prompt", "an object with the field prompt")
    return text


def readiness_of(reply: Reply) -> Readiness:
    """What ``/ready`` says, with 200 or 503. Raises ApiError for another status."""
    if reply.head.status not in (200, 503):
        raise reply.error()
    try:
        raw = json.loads(reply.body)
    except ValueError:
        raw = {}
    raw = raw if isinstance(raw, Mapping) else {}
    return Readiness(
        ready=reply.head.status == 200,
        phase=str(raw.get("phase") or ""),
        done=raw.get("done"),
        total=raw.get("total"),
        eta_s=raw.get("eta_s"),
        raw=raw,
    )


def items_of(where: str, raw: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """The objects of the list ``name``. Raises BadAnswer where there is no such list."""
    found = raw.get(name)
    if not isinstance(found, list):
        raise bad_answer(where, f"no list {name!r}", f"an object with the list {name}")
    return [_mapping(where, each) for each in found]


def _mapping(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise bad_answer(where, f"a {type(value).__name__}", "an object")
    return value
