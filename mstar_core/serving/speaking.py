"""Text in, sound out: one answer, in pieces as they are made."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import numpy as np
from attrs import define
from starlette.responses import Response

from mstar_core.config.sampling import SamplingSettings
from mstar_core.model.front import Front
from mstar_core.serving.codec import to_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.following import admitted, followed
from mstar_core.serving.link import Arrived, Ended
from mstar_core.serving.media.encode import MEDIA, Encoder, encoder, offered
from mstar_core.serving.protocol.audio import (
    SPEECH_NO_OPS,
    SpeechBody,
    SpeechDeltaEvent,
    SpeechDoneEvent,
    SpeechUsage,
)
from mstar_core.serving.protocol.reading import body_of, check_model, unsupported
from mstar_core.serving.sse import DONE, event
from mstar_core.serving.streaming import Stream

_PAUSE_S = 0.01


async def speak(exchange: Exchange) -> Response:
    """The answer to a request for speech. Raises ApiError and RequestError."""
    body: SpeechBody = await body_of(exchange, SpeechBody, SPEECH_NO_OPS)
    _check(exchange, body)
    front, _ = exchange.service.loaded()
    rate = int(front.traits()["sample_rate"])
    if body.stream_format == "sse":
        stream = Stream(exchange)
    else:
        media = MEDIA[body.response_format]
        if body.response_format == "pcm":
            media = f"{media};rate={rate};channels=1"
        stream = Stream(exchange, media_type=media, comment=None)
    speech = _Speech(
        exchange=exchange,
        front=front,
        stream=stream,
        encoder=encoder(body.response_format, rate),
        rate=rate,
        events=body.stream_format == "sse",
    )
    return await stream.begin(speech.told(body))


def _check(exchange: Exchange, body: SpeechBody) -> None:
    """Raise ApiError for what is not offered, or is too long."""
    check_model(exchange, body.model)
    if body.response_format not in offered():
        raise unsupported("response_format", f"What is written is {', '.join(offered())}")
    most = exchange.service.limits.max_speech_chars
    if len(body.input) > most:
        message = f"`input` has {len(body.input)} characters; at most {most} are spoken."
        raise ApiError("limit_exceeded", message, param="input")


@define(kw_only=True, eq=False)
class _Speech:
    """One answer."""

    exchange: Exchange
    front: Front
    stream: Stream
    encoder: Encoder
    rate: int
    events: bool
    """Written as events, instead of the bytes themselves."""
    samples: int = 0

    async def told(self, body: SpeechBody) -> None:
        """Ask the engine for the sound and write it as it comes."""
        options: dict[str, Any] = {"voice": body.voice, "speed": body.speed}
        if body.seed is not None:
            settings = {**self.front.default_sampling(), "seed": body.seed}
            options["sampling"] = SamplingSettings(**settings)
        request = await asyncio.to_thread(self.front.speech_request, body.input, **options)
        ended = await followed(self.exchange, admitted(self.exchange, request), self._take)
        await self._write(await asyncio.to_thread(self.encoder.finish))
        self.exchange.line["audio_out_s"] = self.samples / self.rate
        if self.events:
            self.stream.write(event(to_json(SpeechDoneEvent(usage=_usage(ended)))) + DONE)

    async def _take(self, arrived: Arrived) -> None:
        ids = [token for token in arrived.tokens if token not in self.front.stop_ids]
        if ids:
            await self._write(await asyncio.to_thread(self._encoded, ids))

    def _encoded(self, ids: list[int]) -> bytes:
        samples_T: np.ndarray = self.front.sound(ids, {})
        self.samples += len(samples_T)
        return self.encoder.push(samples_T)

    async def _write(self, data: bytes) -> None:
        """Write ``data`` as the client reads, so that a long sound is no sign of a slow reader."""
        line, most = self.exchange.line, self.exchange.service.limits.max_unread_bytes
        for at in range(0, len(data), most // 4):
            while self.stream.waiting > most // 2:
                await asyncio.sleep(_PAUSE_S)
            line.setdefault("ttfa_ms", (time.perf_counter() - self.exchange.started) * 1000)
            self._tell(data[at : at + most // 4])

    def _tell(self, data: bytes) -> None:
        if self.events:
            audio = base64.b64encode(data).decode("ascii")
            data = event(to_json(SpeechDeltaEvent(audio=audio)))
        self.stream.write(data)


def _usage(ended: Ended) -> SpeechUsage:
    return SpeechUsage(
        input_tokens=ended.prompt_items,
        output_tokens=ended.generated,
        total_tokens=ended.prompt_items + ended.generated,
    )
