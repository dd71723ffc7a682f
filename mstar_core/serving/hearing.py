"""Sound in, text out: what the routes of speech recognition share."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Literal

from attrs import define, field, frozen
from starlette.responses import Response

from mstar_core.config.sampling import SamplingSettings
from mstar_core.model.front import Front, Request
from mstar_core.serving.codec import to_json
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.following import admitted, followed
from mstar_core.serving.link import Arrived
from mstar_core.serving.protocol.audio import (
    DurationUsage,
    HearingBody,
    TextDeltaEvent,
    TextDoneEvent,
)
from mstar_core.serving.sse import DONE, event
from mstar_core.serving.streaming import Stream, attended
from mstar_core.serving.transcript import Transcript, written
from mstar_core.serving.upload import upload
from mstar_core.text.stream import TextStream

Task = Literal["transcribe", "translate"]
TIMED = ("srt", "vtt", "verbose_json")
"""Formats that tell when something was said."""


@frozen(kw_only=True, eq=False)
class Heard:
    """A request of the engine, and the sound and the wishes behind it."""

    front: Front
    body: HearingBody
    task: Task
    request: Request
    seconds: float


async def hear(exchange: Exchange, task: Task) -> Response:
    """The answer to a request that brings sound. Raises ApiError and RequestError."""
    async with upload(exchange) as (body, file):
        heard = await attended(exchange, _prepared(exchange, body, file, task))
    if body.stream:
        stream = Stream(exchange)
        return await stream.begin(_streamed(exchange, heard, stream))
    media, text = await attended(exchange, _whole(exchange, heard))
    return Response(text, media_type=media)


async def _prepared(exchange: Exchange, body: HearingBody, file: int, task: Task) -> Heard:
    """Decode the sound, count it, and ask the front for its request."""
    front, _ = exchange.service.loaded()
    traits = front.traits()
    sound = await exchange.service.decoder.decode(
        file,
        max_seconds=traits.get("max_audio_seconds", math.inf),
        rate=traits.get("input_sample_rate"),
    )
    exchange.line["audio_s"] = sound.seconds
    exchange.admit(audio_s=sound.seconds)
    options = _options(body, task)
    request = await asyncio.to_thread(front.audio_request, sound.samples_T, sound.rate, **options)
    request = admitted(exchange, request)
    return Heard(front=front, body=body, task=task, request=request, seconds=sound.seconds)


def _options(body: HearingBody, task: Task) -> dict[str, Any]:
    """What is said to the front: only what was asked for."""
    asked = {
        "language": body.language,
        "prompt": body.prompt or None,
        "task": task if task == "translate" else None,
        "timestamps": body.response_format in TIMED or None,
    }
    sampling = SamplingSettings(
        temperature=body.temperature or 0.0,
        seed=body.seed,
        logprobs=0 if body.response_format == "verbose_json" else None,
    )
    return {"sampling": sampling} | {k: v for k, v in asked.items() if v is not None}


@define(kw_only=True, eq=False)
class _Collected:
    """What a generation gave, up to the id that ended it."""

    stop_ids: frozenset[int]
    ids: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)

    async def take(self, arrived: Arrived) -> None:
        ids = list(arrived.tokens)
        if ids and ids[-1] in self.stop_ids:
            ids.pop()
        self.ids += ids
        self.logprobs += list(arrived.logprobs)[: len(ids)]


async def _whole(exchange: Exchange, heard: Heard) -> tuple[str, bytes]:
    """Media type and body of an answer that comes in one."""
    collected = _Collected(stop_ids=heard.front.stop_ids)
    await followed(exchange, heard.request, collected.take)
    ids, body = collected.ids, heard.body
    traits = heard.front.traits()
    timed = body.response_format in TIMED
    return written(
        Transcript(
            text=heard.front.decode(ids).strip(),
            seconds=heard.seconds,
            segments=heard.front.segments(ids, heard.seconds) if timed else [],
            logprobs=collected.logprobs,
            task=heard.task,
            language=body.language or traits.get("default_language"),
            temperature=body.temperature or 0.0,
        ),
        body.response_format,
    )


async def _streamed(exchange: Exchange, heard: Heard, stream: Stream) -> None:
    """Write the text to ``stream`` as it comes."""
    text = TextStream(heard.front.decode, stop_ids=heard.front.stop_ids)
    trimmed = _Trimmed()

    def tell(piece: str) -> None:
        if delta := trimmed.push(piece):
            stream.write(event(to_json(TextDeltaEvent(delta=delta))))

    async def take(arrived: Arrived) -> None:
        tell(text.push(arrived.tokens).text)

    await followed(exchange, heard.request, take)
    tell(text.finish().text)
    usage = DurationUsage(seconds=round(heard.seconds, 3))
    stream.write(event(to_json(TextDoneEvent(text=trimmed.text, usage=usage))) + DONE)


class _Trimmed:
    """Text that comes in pieces, without the space at its beginning and its end."""

    def __init__(self) -> None:
        self.text = ""
        self._space = ""

    def push(self, piece: str) -> str:
        """What ``piece`` adds."""
        piece = self._space + piece
        if not self.text:
            piece = piece.lstrip()
        more = piece.rstrip()
        self._space = piece[len(more) :]
        self.text += more
        return more
