"""The client for programs without an event loop."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from mstar_core.client import calls
from mstar_core.client.calls import Call, Messages, Sent, Sound, StreamCall
from mstar_core.client.connection import Connection, Stream
from mstar_core.client.errors import ConnectFailed, ConnectionLost
from mstar_core.client.http1 import Head
from mstar_core.client.kept import Kept
from mstar_core.client.reading import Reply
from mstar_core.client.results import (
    Completion,
    CompletionEvent,
    Model,
    Readiness,
    Transcript,
    TranscriptEvent,
)
from mstar_core.client.settings import POLL_S

T = TypeVar("T")
E = TypeVar("E")


class Client(Kept[Connection]):
    """Calls to one OpenAI-compatible server. Thread-safe; connections are kept for the next call.

    ::

        with Client("http://127.0.0.1:8000") as client:
            print(client.chat([{"role": "user", "content": "Name three rivers."}]).text)

    ``options`` are a request's fields as the protocol names them (``model``, ``max_tokens``,
    ``temperature``, ``stop``, ``seed``, …), and ``request_id``. Every call may raise ApiError,
    ConnectFailed, ConnectionLost, TimedOut or BadAnswer, all of them ClientError; and
    RequestError for what cannot be sent.
    """

    def chat(self, messages: Messages, **options: Any) -> Completion:
        """The answer to ``messages``."""
        return self._call(calls.chat(self.settings.model, messages, options))

    def stream_chat(self, messages: Messages, **options: Any) -> Stream[CompletionEvent]:
        """The same as it is made: Delta, Finish, and Usage where it was asked for."""
        return self._stream(calls.stream_chat(self.settings.model, messages, options))

    def complete(self, prompt: Any, **options: Any) -> Completion:
        """What follows ``prompt``: a text, token ids, or a list of either."""
        return self._call(calls.complete(self.settings.model, prompt, options))

    def stream_complete(self, prompt: Any, **options: Any) -> Stream[CompletionEvent]:
        """The same as it is made."""
        return self._stream(calls.stream_complete(self.settings.model, prompt, options))

    def transcribe(self, sound: Sound, **options: Any) -> Transcript:
        """What is said in a sound file, given by path or as its bytes."""
        return self._call(calls.transcribe("transcriptions", self.settings.model, sound, options))

    def stream_transcribe(self, sound: Sound, **options: Any) -> Stream[TranscriptEvent]:
        """The same as it is heard: Delta, then the whole Transcript."""
        call = calls.stream_transcribe("transcriptions", self.settings.model, sound, options)
        return self._stream(call)

    def translate(self, sound: Sound, **options: Any) -> Transcript:
        """What is said, in English."""
        return self._call(calls.transcribe("translations", self.settings.model, sound, options))

    def speak(self, text: str, **options: Any) -> bytes:
        """``text`` as sound, in the format of ``response_format``."""
        return self._call(calls.speak(self.settings.model, text, options))

    def stream_speak(self, text: str, **options: Any) -> Stream[bytes]:
        """The same sound in pieces, as it is made."""
        return self._stream(calls.stream_speak(self.settings.model, text, options))

    def models(self) -> tuple[Model, ...]:
        """What the server serves."""
        return self._call(calls.models())

    def tokenize(self, text: str | Messages) -> tuple[int, ...]:
        """The token ids of a text, or of a chat."""
        return self._call(calls.tokenize(self.settings.model, text))

    def detokenize(self, tokens: Iterable[int]) -> str:
        """The text of token ids."""
        return self._call(calls.detokenize(self.settings.model, tokens))

    def cancel(self, request_id: str) -> None:
        """End the running request that was sent with ``request_id``."""
        self._call(calls.cancel(request_id))

    def live(self) -> bool:
        """Whether the server's process answers. Raises ConnectFailed where nobody does."""
        return self._call(calls.live())

    def ready(self) -> Readiness:
        """Whether the server takes requests, and else how far it is."""
        return self._call(calls.ready())

    def wait_ready(self, timeout_s: float) -> Readiness:
        """Wait until it is ready. Raises TimedOut, with the phase that it was in."""
        end, phase = time.monotonic() + timeout_s, "not listening"
        while True:
            try:
                found = self.ready()
                if found.ready:
                    return found
                phase = found.phase or "not ready"
            except (ConnectFailed, ConnectionLost):
                phase = "not listening"
            if time.monotonic() > end:
                raise self.settings.not_ready(timeout_s, phase)
            time.sleep(POLL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _stream(self, call: StreamCall[E]) -> Stream[E]:
        return Stream(*self._open(call.sent, ()), call, self._keep)

    def _call(self, call: Call[T]) -> T:
        connection, head = self._open(call.sent, call.also)
        return call.result(self._whole(call.sent, connection, head))

    def _open(self, sent: Sent, also: tuple[int, ...]) -> tuple[Connection, Head]:
        """Send a request, again where the server asks for it. Raises what it says is wrong."""
        data, attempt = self.settings.bytes_of(sent), 0
        while True:
            connection = self._take(sent.where)
            try:
                head = connection.ask(sent, data)
            except BaseException:
                connection.close()
                raise
            if 200 <= head.status < 300 or head.status in also:
                return connection, head
            reply = self._whole(sent, connection, head)
            wait_s = self.settings.wait_s(head, attempt)
            if wait_s is None:
                raise reply.error()
            time.sleep(wait_s)
            attempt += 1

    def _whole(self, sent: Sent, connection: Connection, head: Head) -> Reply:
        """The whole answer; then the connection is free again."""
        try:
            body = b"".join(iter(connection.piece, None))
        except BaseException:
            connection.close()
            raise
        self._keep(connection, head)
        return Reply(where=sent.where, head=head, body=body)

    def _take(self, where: str) -> Connection:
        return self._take_kept() or Connection(self.settings, where)
