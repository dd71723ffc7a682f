"""A transcript as the formats that people ask for, on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from attrs import frozen

from mstar_core.model.segment import Segment, Word

Format = Literal["text", "json", "verbose_json", "srt", "vtt"]
FORMATS: tuple[Format, ...] = get_args(Format)
Task = Literal["transcribe", "translate"]
LEAST_LOGPROB = -9999.0
"""What an infinite one is written as: JSON has no infinity."""


@frozen(kw_only=True, eq=False)
class Transcript:
    """What was heard."""

    segments: Sequence[Segment]
    seconds: float
    """How long the sound lasts."""
    task: Task = "transcribe"
    language: str | None = None

    @property
    def text(self) -> str:
        """All of it, the same in every format."""
        return "".join(segment.text for segment in self.segments).strip()


class Trimmed:
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


def document(heard: Transcript, style: Format, *, words: bool = False) -> str | dict[str, Any]:
    """``heard`` as text that ends with its line, or as the JSON values of an object.

    ``words``: with ``verbose_json``, the words and their times too.
    """
    if style == "text":
        return f"{heard.text}\n"
    if style == "srt":
        return _srt(heard.segments)
    if style == "vtt":
        return _vtt(heard.segments)
    if style == "json":
        return {"text": heard.text}
    told = {
        "task": heard.task,
        "language": heard.language,
        "duration": round(heard.seconds, 3),
        "text": heard.text,
        "segments": [_segment(index, each) for index, each in enumerate(heard.segments)],
    }
    if words:
        told["words"] = [_word(w) for segment in heard.segments for w in segment.words or ()]
    return told


def _segment(index: int, segment: Segment) -> dict[str, Any]:
    mean = segment.avg_logprob
    return {
        "id": index,
        "seek": 0,
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "tokens": list(segment.ids),
        "temperature": segment.temperature,
        "avg_logprob": None if mean is None else max(LEAST_LOGPROB, mean),
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def _word(word: Word) -> dict[str, Any]:
    return {
        "word": word.text.strip(),
        "start": round(word.start, 3),
        "end": round(word.end, 3),
        "probability": word.probability,
    }


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
