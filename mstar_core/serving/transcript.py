"""A transcript as the formats that clients ask for."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from mstar_core.model.segment import Segment
from mstar_core.serving.codec import to_json
from mstar_core.serving.protocol.audio import (
    DurationUsage,
    Format,
    HeardSegment,
    Transcription,
)


@frozen(kw_only=True, eq=False)
class Transcript:
    """What was heard."""

    text: str
    seconds: float
    segments: Sequence[Segment]
    """Empty where no times were asked for."""
    logprobs: Sequence[float]
    """One for each of the answer's ids, or none."""
    task: Literal["transcribe", "translate"]
    language: str | None
    temperature: float


def written(heard: Transcript, style: Format) -> tuple[str, bytes]:
    """Media type and body."""
    if style == "text":
        return "text/plain", f"{heard.text}\n".encode()
    if style == "srt":
        return "application/x-subrip", _srt(heard.segments).encode()
    if style == "vtt":
        return "text/vtt", _vtt(heard.segments).encode()
    usage = DurationUsage(seconds=round(heard.seconds, 3))
    if style == "json":
        return "application/json", to_json(Transcription(text=heard.text, usage=usage))
    return "application/json", to_json(
        Transcription(
            task=heard.task,
            language=heard.language,
            duration=round(heard.seconds, 3),
            text=heard.text,
            segments=[_verbose(heard, index) for index in range(len(heard.segments))],
            usage=usage,
        )
    )


def _verbose(heard: Transcript, index: int) -> HeardSegment:
    segment = heard.segments[index]
    own = heard.logprobs[segment.first : segment.first + len(segment.ids)]
    data = segment.text.encode()
    return HeardSegment(
        id=index,
        seek=0,
        start=segment.start,
        end=segment.end,
        text=segment.text,
        tokens=list(segment.ids),
        temperature=heard.temperature,
        avg_logprob=max(-9999.0, sum(own) / len(own)) if own else 0.0,
        compression_ratio=len(data) / len(zlib.compress(data)),
        no_speech_prob=None,
    )


def _srt(segments: Sequence[Segment]) -> str:
    cues = (
        f"{number}\n{_clock(s.start, ',')} --> {_clock(s.end, ',')}\n{_line(s.text)}\n\n"
        for number, s in enumerate(segments, 1)
    )
    return "".join(cues)


def _vtt(segments: Sequence[Segment]) -> str:
    cues = (
        f"{_clock(s.start, '.')} --> {_clock(s.end, '.')}\n{_escaped(_line(s.text))}\n\n"
        for s in segments
    )
    return "WEBVTT\n\n" + "".join(cues)


def _clock(seconds: float, point: str) -> str:
    """``HH:MM:SS,mmm``."""
    ms = round(seconds * 1000)
    return (
        f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{point}{ms % 1000:03d}"
    )


def _line(text: str) -> str:
    """One line, which can be no cue's times and no cue's end."""
    return " ".join(text.split()).replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
