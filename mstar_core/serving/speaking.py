"""Text in, sound out: one answer, in pieces as they are made."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from contextlib import ExitStack
from typing import Any

import numpy as np
from attrs import define, evolve
from starlette.responses import Response

from mstar_core.config.sampling import SamplingSettings
from mstar_core.model.front import Front, Request
from mstar_core.model.speech import Joined, voices_of
from mstar_core.serving.codec import to_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.following import bounded, followed, tokens_of
from mstar_core.serving.imitating import check_reference, reference_options
from mstar_core.serving.link import Arrived, Ended, Generation
from mstar_core.serving.media.encode import MEDIA, RATES, Encoder, Pcm, encoder, offered
from mstar_core.serving.protocol.audio import (
    SpeechBody,
    SpeechDeltaEvent,
    SpeechDoneEvent,
    SpeechUsage,
    Voices,
)
from mstar_core.serving.protocol.reading import body_of, check_model, unsupported
from mstar_core.serving.sse import DONE, event
from mstar_core.serving.streaming import Stream, submitted

AT_ONCE = 2
"""Parts of one text that are inside the engine together."""
_PAUSE_S = 0.01


OPTIONS = ("language", "instructions")
"""Fields that a front takes where its ``speech_options`` say so."""


async def speak(exchange: Exchange) -> Response:
    """The answer to a request for speech. Raises ApiError and RequestError."""
    body: SpeechBody = await body_of(exchange, SpeechBody, {})
    front, _ = exchange.service.loaded()
    _check(exchange, body, front)
    rate = int(front.traits()["sample_rate"])
    style, new_rate = body.response_format, body.sample_rate
    if body.stream_format == "sse":
        stream = Stream(exchange)
    else:
        media = MEDIA[style]
        if style == "pcm":
            media = f"{media};rate={new_rate or rate};channels=1"
        stream = Stream(exchange, media_type=media, comment=None)
    speech = _Speech(
        exchange=exchange,
        front=front,
        stream=stream,
        encoder=encoder(style, rate, new_rate),
        joined=Joined(rate),
        rate=rate,
        events=body.stream_format == "sse",
    )
    return await stream.begin(speech.told(body))


async def voices(exchange: Exchange) -> Response:
    """What may be asked of the model's voice. Raises ApiError where it does not speak."""
    front, card = exchange.service.loaded()
    if "speech" not in card.capabilities:
        raise ApiError("route_not_offered", "This model does not speak.")
    told = Voices(**voices_of(front.traits()))
    return Response(to_json(told), media_type="application/json")


def _check(exchange: Exchange, body: SpeechBody, front: Front) -> None:
    """Raise ApiError for what is not offered, or is too long."""
    check_model(exchange, body.model)
    style, new_rate = body.response_format, body.sample_rate
    if style not in offered():
        raise unsupported("response_format", f"What is written is {', '.join(offered())}")
    if new_rate is not None and new_rate not in RATES.get(style, (new_rate,)):
        known = ", ".join(map(str, RATES[style]))
        message = f"`sample_rate` of {style} is one of {known}; wav, flac and pcm have any."
        raise ApiError("invalid_value", message, param="sample_rate")
    takes = front.speech_options()
    for name in OPTIONS:
        if getattr(body, name) and name not in takes:
            raise unsupported(name, "This model does not take it")
    check_reference(body, takes)
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
    joined: Joined
    rate: int
    events: bool
    """Written as events, instead of the bytes themselves."""
    samples: int = 0
    is_last: bool = False
    """No part follows the one that is spoken."""

    async def told(self, body: SpeechBody) -> None:
        """Ask the engine for the sound and write it as it comes."""
        voice = await reference_options(self.exchange, body)
        made = await asyncio.to_thread(self._requests, body, voice)
        requests = [bounded(self.exchange, request) for request in made]
        self.exchange.admit(tokens=sum(sorted(map(tokens_of, requests))[-AT_ONCE:]))
        ends = await self._spoken(requests)
        await self._write(await asyncio.to_thread(self.encoder.finish))
        if any(ended.reason == "length" for ended in ends):
            self.exchange.line["outcome"] = "length"
        if self.events:
            self.stream.write(event(to_json(SpeechDoneEvent(usage=_usage(ends)))) + DONE)

    async def _spoken(self, requests: list[Request]) -> list[Ended]:
        """Speak one part of the text behind the other; how each ended.

        The next one is on its way meanwhile, behind what others ask for the first time.
        """
        ends: list[Ended] = []
        waiting = deque([requests[0], *(evolve(r, priority=r.priority - 1) for r in requests[1:])])
        begun: deque[Generation] = deque()
        with ExitStack() as open_:
            while begun or waiting:
                while waiting and len(begun) < AT_ONCE:
                    part = submitted(self.exchange, waiting.popleft())
                    begun.append(open_.enter_context(part))
                self.is_last = len(begun) == 1
                ends.append(await followed(self.exchange, begun.popleft(), self._take))
                await self._say(self.joined.end())
        return ends

    def _requests(self, body: SpeechBody, voice: dict[str, Any]) -> list[Request]:
        options: dict[str, Any] = {"voice": body.voice, "speed": body.speed, **voice}
        options |= {name: given for name in OPTIONS if (given := getattr(body, name))}
        if body.seed is not None:
            settings = {**self.front.default_sampling(), "seed": body.seed}
            options["sampling"] = SamplingSettings(**settings)
        return self.front.speech_requests(body.input, **options)

    async def _take(self, arrived: Arrived) -> None:
        samples_T = self.front.sound(arrived.tokens, arrived.items)
        if len(samples_T):
            await self._say(self.joined.push(samples_T, last=self.is_last))

    async def _say(self, samples_T: np.ndarray) -> None:
        if not len(samples_T):
            return
        self.samples += len(samples_T)
        self.exchange.line["audio_out_s"] = self.samples / self.rate
        if isinstance(self.encoder, Pcm):  # quicker than a thread is found
            await self._write(self.encoder.push(samples_T))
        else:
            await self._write(await asyncio.to_thread(self.encoder.push, samples_T))

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


def _usage(ends: list[Ended]) -> SpeechUsage:
    asked = sum(ended.prompt_items for ended in ends)
    given = sum(ended.generated for ended in ends)
    return SpeechUsage(input_tokens=asked, output_tokens=given, total_tokens=asked + given)
