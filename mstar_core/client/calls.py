"""Every call as data: what is sent, and how the answer is read. Both clients send these."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from attrs import frozen

from mstar_core.client import reading
from mstar_core.client.errors import bad_answer
from mstar_core.client.events import AudioReading, CompletionReading, Reading, TranscriptReading
from mstar_core.client.reading import Reply
from mstar_core.client.results import (
    Completion,
    CompletionEvent,
    Model,
    Readiness,
    Transcript,
    TranscriptEvent,
)
from mstar_core.errors import RequestError, Words

T = TypeVar("T")
E = TypeVar("E")
Sound = str | os.PathLike[str] | bytes
"""A file's path, or a file's bytes."""
Messages = Sequence[Mapping[str, Any]]


@frozen(kw_only=True)
class Sent:
    """One request, but for what every request of a client has."""

    method: str = "POST"
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    request_id: str | None = None

    @property
    def where(self) -> str:
        """Its name in errors."""
        return f"{self.method} {self.path}"


@frozen(kw_only=True)
class Call(Generic[T]):
    """A request whose answer is read whole."""

    sent: Sent
    read: Callable[[Reply], T]
    also: tuple[int, ...] = ()
    """Statuses beside 200 that are answers, not errors."""

    def result(self, reply: Reply) -> T:
        """What the answer gives. Raises BadAnswer where it is of another shape."""
        try:
            return self.read(reply)
        except (AttributeError, TypeError):  # a field is of another type
            want = "the protocol's"
            raise bad_answer(reply.where, "an answer of another shape", want) from None


@frozen(kw_only=True)
class StreamCall(Generic[E]):
    """A request whose answer is read as it comes."""

    sent: Sent
    reading: Callable[[str, str | None], Reading[E]]


def chat(model: str | None, messages: Messages, options: Mapping[str, Any]) -> Call[Completion]:
    """``/v1/chat/completions``."""
    sent = _posted("/v1/chat/completions", model, {"messages": list(messages), **options})
    return Call(sent=sent, read=reading.completion_of)


def stream_chat(
    model: str | None, messages: Messages, options: Mapping[str, Any]
) -> StreamCall[CompletionEvent]:
    """The same, streamed."""
    fields = {"messages": list(messages), "stream": True, **options}
    sent = _posted("/v1/chat/completions", model, fields)
    return StreamCall(sent=sent, reading=CompletionReading)


def complete(model: str | None, prompt: Any, options: Mapping[str, Any]) -> Call[Completion]:
    """``/v1/completions``."""
    sent = _posted("/v1/completions", model, {"prompt": prompt, **options})
    return Call(sent=sent, read=reading.completion_of)


def stream_complete(
    model: str | None, prompt: Any, options: Mapping[str, Any]
) -> StreamCall[CompletionEvent]:
    """The same, streamed."""
    sent = _posted("/v1/completions", model, {"prompt": prompt, "stream": True, **options})
    return StreamCall(sent=sent, reading=CompletionReading)


def transcribe(
    route: str, model: str | None, sound: Sound, options: Mapping[str, Any]
) -> Call[Transcript]:
    """``/v1/audio/transcriptions`` or ``translations``, by ``route``."""
    sent = _uploaded(f"/v1/audio/{route}", model, sound, options)
    return Call(sent=sent, read=reading.transcript_of)


def stream_transcribe(
    route: str, model: str | None, sound: Sound, options: Mapping[str, Any]
) -> StreamCall[TranscriptEvent]:
    """The same, streamed."""
    sent = _uploaded(f"/v1/audio/{route}", model, sound, {"stream": True, **options})
    return StreamCall(sent=sent, reading=TranscriptReading)


def speak(model: str | None, text: str, options: Mapping[str, Any]) -> Call[bytes]:
    """``/v1/audio/speech``, whole."""
    return Call(sent=_speech(model, text, options), read=lambda reply: reply.body)


def stream_speak(model: str | None, text: str, options: Mapping[str, Any]) -> StreamCall[bytes]:
    """The same sound in pieces, as it is made."""
    return StreamCall(sent=_speech(model, text, options), reading=AudioReading)


def models() -> Call[tuple[Model, ...]]:
    """``/v1/models``."""
    return Call(sent=Sent(method="GET", path="/v1/models"), read=reading.models_of)


def tokenize(model: str | None, text: str | Messages) -> Call[tuple[int, ...]]:
    """``/tokenize`` of a text, or of a chat's messages."""
    fields = {"prompt": text} if isinstance(text, str) else {"messages": list(text)}
    return Call(sent=_posted("/tokenize", model, fields), read=reading.tokens_of)


def detokenize(model: str | None, tokens: Iterable[int]) -> Call[str]:
    """``/detokenize``."""
    sent = _posted("/detokenize", model, {"tokens": list(tokens)})
    return Call(sent=sent, read=reading.prompt_of)


def live() -> Call[bool]:
    """``/live``."""
    return Call(sent=Sent(method="GET", path="/live"), read=lambda reply: True)


def ready() -> Call[Readiness]:
    """``/ready``, which answers 503 while the server starts or drains."""
    return Call(sent=Sent(method="GET", path="/ready"), read=reading.readiness_of, also=(503,))


def cancel(request_id: str) -> Call[None]:
    """``/v1/requests/{id}/cancel``."""
    if not request_id or not request_id.isascii() or any(c in request_id for c in "/?#% \r\n"):
        raise RequestError(
            where="request_id",
            got=request_id,
            want="the id of a request",
            fix="give the id that the request was sent with",
        )
    return Call(sent=Sent(path=f"/v1/requests/{request_id}/cancel"), read=lambda reply: None)


def _speech(model: str | None, text: str, options: Mapping[str, Any]) -> Sent:
    return _posted("/v1/audio/speech", model, {"input": text, **options})


def _posted(path: str, model: str | None, fields: Mapping[str, Any]) -> Sent:
    """A JSON body; the option ``request_id`` travels as a header."""
    fields = {"model": model, **fields}
    request_id = fields.pop("request_id", None)
    if fields["model"] is None:
        del fields["model"]
    try:
        body = json.dumps(fields, allow_nan=False).encode("ascii")
    except (TypeError, ValueError) as error:
        raise RequestError(
            where=path,
            got=Words(str(error)),
            want="options that JSON can hold",
            fix="give numbers, strings, lists and objects; no NaN",
        ) from None
    return Sent(path=path, body=body, request_id=request_id)


def _uploaded(path: str, model: str | None, sound: Sound, options: Mapping[str, Any]) -> Sent:
    """A multipart body: each option a field, and the file."""
    fields = {"model": model, **options}
    request_id = fields.pop("request_id", None)
    name, data = _file(sound)
    boundary = os.urandom(16).hex()
    parts = [
        _part(boundary, f'name="{field}"', value.encode("utf-8")) for field, value in _form(fields)
    ]
    parts.append(_part(boundary, f'name="file"; filename="{name}"', data))
    body = b"".join([*parts, f"--{boundary}--\r\n".encode("ascii")])
    kind = f"multipart/form-data; boundary={boundary}"
    return Sent(path=path, body=body, content_type=kind, request_id=request_id)


def _file(sound: Sound) -> tuple[str, bytes]:
    if isinstance(sound, bytes):
        return "audio", sound
    path = Path(sound)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(
            where="sound",
            got=Words(f"{path}: {error.strerror}"),
            want="a file that can be read",
            fix="check its name",
        ) from None
    safe = "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else "_" for c in path.name)
    return safe, data


def _part(boundary: str, disposition: str, value: bytes) -> bytes:
    head = f"--{boundary}\r\ncontent-disposition: form-data; {disposition}\r\n"
    kind = "content-type: application/octet-stream\r\n" if "filename=" in disposition else ""
    return f"{head}{kind}\r\n".encode() + value + b"\r\n"


def _form(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A form's fields: none for None, one for a scalar, ``name[]`` for each entry of a list."""
    for name, given in fields.items():
        entries = given if isinstance(given, list | tuple) else [given]
        key = f"{name}[]" if isinstance(given, list | tuple) else name
        for each in entries:
            if each is not None:
                yield key, str(each).lower() if isinstance(each, bool) else str(each)
