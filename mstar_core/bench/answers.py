"""What a load generator takes from an answer: times and counts, as little else as it can."""

from __future__ import annotations

import json
import re
from typing import Any

from mstar_core.bench.stats import Sample
from mstar_core.client.http1 import Head
from mstar_core.client.sse import EventParser

PCM = re.compile(r"(rate|channels)=(\d+)")
"""What ``audio/pcm;rate=24000;channels=1`` says of ``response_format: pcm``."""
RATE, SAMPLE_BYTES = 24_000, 2
"""Of a server that does not say its rate."""


class Answer:
    """One answer, as its pieces arrive; seconds of one clock."""

    def __init__(self, route: str, audio_s: float, due_s: float, sent_s: float) -> None:
        self._writes = route in ("chat", "completions")
        self._speaks = route == "speech"
        self._streams = False
        self._audio_s, self._due_s, self._sent_s = audio_s, due_s, sent_s
        self._first_s: float | None = None
        self._last_s = 0.0
        self._gaps_s: list[float] = []
        self._parser = EventParser(route)
        self._body: list[bytes] = []
        self._status = 0
        self._bytes = self._chunks = self._events = 0
        self._bytes_per_s = RATE * SAMPLE_BYTES
        self._usage: dict[str, Any] = {}
        self._error: str | None = None
        self._finished = self._done = False

    def begin(self, head: Head) -> None:
        """The head is there."""
        self._status = head.status
        kind = head.headers.get("content-type", "")
        self._streams = kind.startswith("text/event-stream")
        told = dict(PCM.findall(kind))
        frame_bytes = int(told.get("channels", 1)) * SAMPLE_BYTES
        self._bytes_per_s = max(int(told.get("rate", RATE)), 1) * max(frame_bytes, 1)

    def take(self, piece: bytes, now_s: float) -> None:
        """A piece of the body arrived."""
        if self._streams and self._status == 200:
            for event in self._parser.feed(piece):
                self._take_event(event.data, now_s)
        elif self._speaks and self._status == 200:
            self._bytes += len(piece)
            if now_s > self._last_s:  # what came at once is one chunk
                self._came(now_s)
        else:
            self._body.append(piece)

    def _take_event(self, data: str, now_s: float) -> None:
        self._events += 1
        if data == "[DONE]":
            self._done = True
            return
        told = json.loads(data)
        if told.get("error"):
            self._error = f"in stream: {_code(told)}"
        self._usage = told.get("usage") or self._usage
        for choice in told.get("choices") or ():
            self._finished = self._finished or bool(choice.get("finish_reason"))
            delta = choice.get("delta")
            texts = choice.get("text") if delta is None else _anything(delta)
            if texts:
                self._chunks += 1
                self._came(now_s)

    def _came(self, now_s: float) -> None:
        if self._first_s is None:
            self._first_s = now_s
        else:
            self._gaps_s.append(now_s - self._last_s)
        self._last_s = now_s

    def sample(self, end_s: float, failed: BaseException | None = None) -> Sample:
        """What became of the request."""
        wrong = self._wrong(failed)
        audio_s = self._bytes / self._bytes_per_s if self._speaks else self._audio_s
        return Sample(
            due_s=self._due_s,
            sent_s=self._sent_s,
            end_s=end_s,
            first_s=self._first_s,
            gaps_s=self._gaps_s,
            chunks=self._chunks,
            events=self._events,
            prompt_tokens=self._usage.get("prompt_tokens") or 0,
            output_tokens=self._usage.get("completion_tokens") or self._chunks,
            audio_s=audio_s,
            error=wrong,
        )

    def _wrong(self, failed: BaseException | None) -> str | None:
        if failed is not None:
            return _named(failed)
        if self._status != 200:
            return f"{self._status} {_code_of(b''.join(self._body))}".strip()
        if self._error is None and self._streams and not (self._finished and self._done):
            return "stream without its end"
        if self._writes and not self._streams:
            return self._read_whole()
        return self._error

    def _read_whole(self) -> str | None:
        """Of a chat or completion that is not streamed: its tokens, or what is wrong with it."""
        try:
            told = json.loads(b"".join(self._body))
            self._usage = told.get("usage") or {}
        except (ValueError, AttributeError):
            return "no answer in JSON"
        return None if told.get("choices") else "answer without choices"


def _named(failed: BaseException) -> str:
    if isinstance(failed, TimeoutError):
        return "timed out"
    return "connection" if isinstance(failed, OSError) else type(failed).__name__


def _anything(delta: dict[str, Any]) -> Any:
    """What a chat's chunk adds, if it adds anything."""
    return (
        delta.get("content")
        or delta.get("reasoning_content")
        or delta.get("reasoning")
        or delta.get("tool_calls")
    )


def _code_of(body: bytes) -> str:
    try:
        return _code(json.loads(body))
    except (ValueError, AttributeError):
        return ""


def _code(told: dict[str, Any]) -> str:
    error = told.get("error") or told
    return str(error.get("code") or error.get("type") or "") if isinstance(error, dict) else ""
