"""The client for programs with an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from mstar_core.client import calls
from mstar_core.client.async_connection import AsyncConnection, AsyncStream
from mstar_core.client.calls import Call, Messages, Sent, Sound, StreamCall
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


class AsyncClient(Kept[AsyncConnection]):
    """Calls to one OpenAI-compatible server, for one event loop; connections are kept.

    ::

        async with AsyncClient("http://127.0.0.1:8000") as client:
            async for event in client.stream_chat([{"role": "user", "content": "Hello"}]):
                ...

    ``options`` are a request's fields as the protocol names them (``model``, ``max_tokens``,
    ``temperature``, ``stop``, ``seed``, …), and ``request_id``. Every call may raise ApiError,
    ConnectFailed, ConnectionLost, TimedOut or BadAnswer, all of them ClientError; and
    RequestError for what cannot be sent.
    """

    async def chat(self, messages: Messages, **options: Any) -> Completion:
        """The answer to ``messages``."""
        return await self._call(calls.chat(self.settings.model, messages, options))

    def stream_chat(self, messages: Messages, **options: Any) -> AsyncStream[CompletionEvent]:
        """The same as it is made: Delta, Finish, and Usage where it was asked for."""
        return self._stream(calls.stream_chat(self.settings.model, messages, options))

    async def complete(self, prompt: Any, **options: Any) -> Completion:
        """What follows ``prompt``: a text, token ids, or a list of either."""
        return await self._call(calls.complete(self.settings.model, prompt, options))

    def stream_complete(self, prompt: Any, **options: Any) -> AsyncStream[CompletionEvent]:
        """The same as it is made."""
        return self._stream(calls.stream_complete(self.settings.model, prompt, options))

    async def transcribe(self, sound: Sound, **options: Any) -> Transcript:
        """What is said in a sound file, given by path or as its bytes."""
        return await self._call(
            calls.transcribe("transcriptions", self.settings.model, sound, options)
        )

    def stream_transcribe(self, sound: Sound, **options: Any) -> AsyncStream[TranscriptEvent]:
        """The same as it is heard: Delta, then the whole Transcript."""
        call = calls.stream_transcribe("transcriptions", self.settings.model, sound, options)
        return self._stream(call)

    async def translate(self, sound: Sound, **options: Any) -> Transcript:
        """What is said, in English."""
        return await self._call(
            calls.transcribe("translations", self.settings.model, sound, options)
        )

    async def speak(self, text: str, **options: Any) -> bytes:
        """``text`` as sound, in the format of ``response_format``."""
        return await self._call(calls.speak(self.settings.model, text, options))

    def stream_speak(self, text: str, **options: Any) -> AsyncStream[bytes]:
        """The same sound in pieces, as it is made."""
        return self._stream(calls.stream_speak(self.settings.model, text, options))

    async def models(self) -> tuple[Model, ...]:
        """What the server serves."""
        return await self._call(calls.models())

    async def tokenize(self, text: str | Messages) -> tuple[int, ...]:
        """The token ids of a text, or of a chat."""
        return await self._call(calls.tokenize(self.settings.model, text))

    async def detokenize(self, tokens: Iterable[int]) -> str:
        """The text of token ids."""
        return await self._call(calls.detokenize(self.settings.model, tokens))

    async def cancel(self, request_id: str) -> None:
        """End the running request that was sent with ``request_id``."""
        await self._call(calls.cancel(request_id))

    async def live(self) -> bool:
        """Whether the server's process answers. Raises ConnectFailed where nobody does."""
        return await self._call(calls.live())

    async def ready(self) -> Readiness:
        """Whether the server takes requests, and else how far it is."""
        return await self._call(calls.ready())

    async def wait_ready(self, timeout_s: float) -> Readiness:
        """Wait until it is ready. Raises TimedOut, with the phase that it was in."""
        end, phase = time.monotonic() + timeout_s, "not listening"
        while True:
            try:
                found = await self.ready()
                if found.ready:
                    return found
                phase = found.phase or "not ready"
            except (ConnectFailed, ConnectionLost):
                phase = "not listening"
            if time.monotonic() > end:
                raise self.settings.not_ready(timeout_s, phase)
            await asyncio.sleep(POLL_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _stream(self, call: StreamCall[E]) -> AsyncStream[E]:
        return AsyncStream(call, self._open, self._keep)

    async def _call(self, call: Call[T]) -> T:
        connection, head = await self._open(call.sent, call.also)
        return call.result(await self._whole(call.sent, connection, head))

    async def _open(self, sent: Sent, also: tuple[int, ...]) -> tuple[AsyncConnection, Head]:
        """Send a request, again where the server asks for it. Raises what it says is wrong."""
        data, attempt = self.settings.bytes_of(sent), 0
        while True:
            connection = await self._take(sent.where)
            try:
                head = await connection.ask(sent, data)
            except BaseException:
                connection.close()
                raise
            if 200 <= head.status < 300 or head.status in also:
                return connection, head
            reply = await self._whole(sent, connection, head)
            wait_s = self.settings.wait_s(head, attempt)
            if wait_s is None:
                raise reply.error()
            await asyncio.sleep(wait_s)
            attempt += 1

    async def _whole(self, sent: Sent, connection: AsyncConnection, head: Head) -> Reply:
        """The whole answer; then the connection is free again."""
        try:
            pieces = []
            while (piece := await connection.piece()) is not None:
                pieces.append(piece)
        except BaseException:
            connection.close()
            raise
        self._keep(connection, head)
        return Reply(where=sent.where, head=head, body=b"".join(pieces))

    async def _take(self, where: str) -> AsyncConnection:
        return self._take_kept() or await AsyncConnection.open(self.settings, where)
