"""Sound in, text out: what the routes of speech recognition share."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from attrs import frozen
from starlette.responses import Response

from mstar_core.model.segment import Segment
from mstar_core.model.transcript import Task, Transcript, Trimmed, document
from mstar_core.model.transcription import Sound, Transcription
from mstar_core.serving.codec import to_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.planned import planned
from mstar_core.serving.protocol.audio import (
    DurationUsage,
    HearingBody,
    TextDeltaEvent,
    TextDoneEvent,
)
from mstar_core.serving.protocol.reading import unsupported
from mstar_core.serving.sse import DONE, event
from mstar_core.serving.streaming import Stream, attended
from mstar_core.serving.upload import upload

MEDIA = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}
"""Media types of the formats that are not JSON."""
WORD = "word"


@frozen(kw_only=True, eq=False)
class Heard:
    """The plan of a sound, and the wishes behind it."""

    plan: Transcription
    body: HearingBody
    task: Task
    seconds: float

    @property
    def usage(self) -> DurationUsage:
        """What the request is counted by."""
        return DurationUsage(seconds=round(self.seconds, 3))


async def hear(exchange: Exchange, task: Task) -> Response:
    """The answer to a request that brings sound. Raises ApiError and RequestError."""
    async with upload(exchange) as (body, file):
        heard = await attended(exchange, _prepared(exchange, body, file, task))
    if body.stream:
        stream = Stream(exchange)
        return await stream.begin(_streamed(exchange, heard, stream))
    return await attended(exchange, _whole(exchange, heard))


async def _prepared(exchange: Exchange, body: HearingBody, file: int, task: Task) -> Heard:
    """Decode the sound, count it, and ask the front for its plan."""
    front, _ = exchange.service.loaded()
    traits = front.traits()
    _check_words(body, traits)
    sound = await exchange.service.decoder.decode(
        file,
        max_seconds=traits.get("max_audio_seconds", math.inf),
        rate=traits.get("input_sample_rate"),
    )
    exchange.line["audio_s"] = sound.seconds
    exchange.admit(audio_s=sound.seconds)
    heard = Sound.of(sound.samples_T, sound.rate)
    plan = await asyncio.to_thread(front.transcription, heard, **_options(body, task))
    return Heard(plan=plan, body=body, task=task, seconds=sound.seconds)


def _check_words(body: HearingBody, traits: dict[str, Any]) -> None:
    """Raise ApiError where the times of words are asked for and cannot be told."""
    if WORD not in body.timestamp_granularities:
        return
    if not traits.get("word_timestamps"):
        raise unsupported("timestamp_granularities", "This model times segments, not words")
    if body.response_format != "verbose_json":
        message = "`timestamp_granularities` of words needs the `response_format` `verbose_json`."
        raise ApiError("invalid_value", message, param="timestamp_granularities")


def _options(body: HearingBody, task: Task) -> dict[str, Any]:
    """What is said to the front: only what was asked for."""
    asked = {
        "language": body.language,
        "prompt": body.prompt or None,
        "hotwords": body.hotwords or None,
        "task": task if task == "translate" else None,
        "temperature": body.temperature or None,
        "seed": body.seed,
        "word_timestamps": WORD in body.timestamp_granularities or None,
    }
    return {name: value for name, value in asked.items() if value is not None}


async def _whole(exchange: Exchange, heard: Heard) -> Response:
    """An answer that comes in one."""
    segments: list[Segment] = []
    await planned(exchange, heard.plan, segments.extend)
    body, style = heard.body, heard.body.response_format
    transcript = Transcript(
        segments=segments,
        seconds=heard.seconds,
        task=heard.task,
        language=heard.plan.language or body.language,
    )
    told = document(transcript, style, words=WORD in body.timestamp_granularities)
    if isinstance(told, str):
        return Response(told, media_type=MEDIA[style])
    return Response(to_json({**told, "usage": heard.usage}), media_type="application/json")


async def _streamed(exchange: Exchange, heard: Heard, stream: Stream) -> None:
    """Write the text to ``stream``, segment by segment, as they are final."""
    trimmed = Trimmed()

    def tell(final: list[Segment]) -> None:
        for segment in final:
            if delta := trimmed.push(segment.text):
                stream.write(event(to_json(TextDeltaEvent(delta=delta))))

    await planned(exchange, heard.plan, tell)
    stream.write(event(to_json(TextDoneEvent(text=trimmed.text, usage=heard.usage))) + DONE)
