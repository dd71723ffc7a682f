"""Text to bytes and back. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from mstar_core.audio import mono
from mstar_core.echo.asked import bytes_of, checked, ids_of, last_user
from mstar_core.echo.faults import Order, order_of, strike
from mstar_core.echo.hearing import EchoTranscription
from mstar_core.echo.tones import RATE, tones
from mstar_core.errors import RequestError
from mstar_core.model.front import Front, Request
from mstar_core.model.transcription import Sound, Transcription

END = 256
"""The id behind the last byte of an answer."""
CONTEXT = 65536
"""Tokens of the longest prompt and answer together."""
VOICE = "tone"
HEARD_RATE = 16_000
"""Samples per second of the sound that is heard."""


class EchoFront(Front):
    """The front of the echo model. Every ``options`` is a field of :class:`Request`."""

    stop_ids = frozenset({END})

    def __init__(self, faults: bool = False) -> None:
        self.faults = faults

    def text_request(self, prompt: str, **options: Any) -> Request:
        """A request that is answered with ``prompt``. Raises RequestError for what is no text."""
        return self.ids_request(ids_of(prompt, "prompt"), **options)

    def chat_request(
        self, messages: Sequence[Mapping[str, Any]], *, think: bool | None = None, **options: Any
    ) -> Request:
        """A request that is answered with the last user's turn; ``think`` changes nothing."""
        return self.ids_request(ids_of(last_user(messages), "messages"), **options)

    def ids_request(self, ids: Sequence[int] | np.ndarray, **options: Any) -> Request:
        """A request that is answered with ``ids``, each below 257. Raises RequestError."""
        given = checked(ids)
        order = self._order(given)
        options.setdefault("stop_ids", self.stop_ids)
        if options.get("sampling") is None:
            options.pop("sampling", None)
        size = len(given)
        arrays = {"ids": given, "length": np.full(size, size, np.int64)}
        if self.faults:
            arrays["heard"] = _heard(order)
            arrays["order"] = np.repeat(arrays["heard"], size, axis=0)
        return Request(arrays=arrays, **options)

    def audio_request(
        self,
        samples: np.ndarray,
        rate: int,
        *,
        prompt: str | None = None,
        language: str | None = None,
        task: str | None = None,
        timestamps: bool = False,
        **options: Any,
    ) -> Request:
        """A request that is answered with ``prompt``, or with how long the sound lasts."""
        text = prompt or f"{len(mono(samples)) / rate:.2f} s of sound"
        request = self._whole(bytes_of(text, "prompt"), options)
        return attrs.evolve(request, arrays={"heard": _heard(Order()), **request.arrays})

    def transcription(self, sound: Sound, **options: Any) -> Transcription:
        """A plan that hears a window of 30 seconds after the other."""
        return EchoTranscription(self, sound, options)

    def speech_request(
        self, text: str, *, voice: str | None = None, speed: float = 1.0, **options: Any
    ) -> Request:
        """A request whose sound is a tone per byte; ``speed`` leaves some out, or repeats them."""
        if voice not in (None, VOICE):
            raise RequestError(where="voice", got=voice, want=f"{VOICE!r}", fix="leave voice out")
        said = bytes_of(text, "input")
        size = max(1, round(len(said) / speed)) if said else 0
        return self._whole([said[min(len(said) - 1, int(i * speed))] for i in range(size)], options)

    def sound(self, ids: Sequence[int], items: Mapping[str, np.ndarray]) -> np.ndarray:
        """float32 ``[T]``: 10 ms for each byte."""
        return tones([i for i in ids if 0 <= i < END])

    def traits(self) -> dict[str, Any]:
        """Rates of the sound that is heard and made, the only voice, and that words are timed."""
        rates = {"input_sample_rate": HEARD_RATE, "sample_rate": RATE}
        return {**rates, "voices": [VOICE], "word_timestamps": True}

    def encode(self, text: str) -> list[int]:
        """The bytes of ``text``. Raises RequestError for what is no text."""
        return list(bytes_of(text, "prompt"))

    def chat_options(self) -> frozenset[str]:
        return frozenset({"think"})

    def token_bytes(self, token: int) -> bytes:
        """The byte; behind the last of an answer there is none."""
        return bytes([token]) if 0 <= token < END else b""

    def decode(self, ids: Sequence[int]) -> str:
        """The bytes among ``ids`` as UTF-8; what is no character becomes U+FFFD."""
        text = bytes(i for i in ids if 0 <= i < END)
        if self.faults and text.startswith(b"!decode"):
            strike("decode", 0, 0)
        return text.decode("utf-8", errors="replace")

    def _whole(self, text: Sequence[int], options: dict[str, Any]) -> Request:
        """A request that is answered with all of ``text``."""
        options.setdefault("max_new_tokens", min(len(text) + 1, CONTEXT - len(text)))
        return self.ids_request(list(text), **options)

    def _order(self, ids: np.ndarray) -> Order:
        if not self.faults:
            return Order()
        order = order_of(bytes(i for i in ids[:64].tolist() if i < END).decode("utf-8", "replace"))
        if order.kind == "front":
            strike("front", 0, 0)
        return order


def _heard(order: Order) -> np.ndarray:
    """int64 ``[1, 3]``: what the ears are given; without it they are passed by."""
    return np.array([order.numbers], np.int64)
