"""``/v1/audio/…``: sound in and text out, text in and sound out."""

from __future__ import annotations

from typing import Annotated, Literal

from attrs import field, frozen

from mstar_core.model.transcript import Format, Task
from mstar_core.serving.codec import UNSET, Meta, UnsetType
from mstar_core.serving.protocol.fields import BIG, Count, Text, TokenId, Word

Granularity = Literal["segment", "word"]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Ratio = Annotated[float, Meta(ge=0, le=1e9)]
HEARING_NO_OPS: dict[str, tuple[object, ...]] = {
    "chunking_strategy": (None, "auto"),
    "known_speaker_names": (None, []),
    "known_speaker_references": (None, []),
    "diarize": (None, False, "false"),
}
"""Fields that are known and not offered, and their values that ask for nothing."""


@frozen(kw_only=True)
class HearingBody:
    """Sound, and what its text should be like. Sent as a form; as JSON it has a ``url``."""

    file: Annotated[str, Meta(max_length=BIG, extra_json_schema={"format": "binary"})] | None = None
    """The sound: wav, flac, ogg (vorbis, opus) or mp3, by its content."""
    url: Annotated[str, Meta(max_length=2048)] | None = None
    """Where the sound is, in place of ``file``; only hosts that the server names are asked."""
    model: Word | None = None
    language: Word | None = None
    """Code of the language spoken."""
    prompt: Text = ""
    """What was said before, or words to expect."""
    hotwords: Text = ""
    """Words to expect, in all of a long sound."""
    response_format: Format = "json"
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    timestamp_granularities: Annotated[list[Granularity], Meta(max_length=8)] = field(factory=list)
    include: Annotated[list[Literal["logprobs"]], Meta(max_length=8)] = field(factory=list)
    stream: bool | None = None


@frozen(kw_only=True)
class DurationUsage:
    """What a request is counted by: seconds of sound."""

    seconds: Seconds
    type: Literal["duration"] = "duration"


@frozen(kw_only=True)
class HeardSegment:
    """A stretch of speech."""

    id: Count
    seek: Count
    """Always 0."""
    start: Seconds
    end: Seconds
    text: Text
    tokens: Annotated[list[TokenId], Meta(max_length=BIG)]
    temperature: Annotated[float, Meta(ge=0, le=2)] | None
    """That its window was drawn at, like the three below."""
    avg_logprob: Annotated[float, Meta(ge=-9999, le=0)] | None
    compression_ratio: Ratio | None
    """Bytes of the text by its bytes compressed; speech that repeats itself has a high one."""
    no_speech_prob: Annotated[float, Meta(ge=0, le=1)] | None
    """Null: the model does not measure it."""


@frozen(kw_only=True)
class HeardWord:
    """One word."""

    word: Text
    start: Seconds
    end: Seconds
    probability: Annotated[float, Meta(ge=0, le=1)]


@frozen(kw_only=True)
class Transcription:
    """The text of a sound; with its times where ``response_format`` is ``verbose_json``."""

    text: Text
    usage: DurationUsage
    task: Task | UnsetType = UNSET
    language: Word | UnsetType | None = UNSET
    """As the model found it, or the request names it."""
    duration: Seconds | UnsetType = UNSET
    segments: Annotated[list[HeardSegment], Meta(max_length=BIG)] | UnsetType = UNSET
    words: Annotated[list[HeardWord], Meta(max_length=BIG)] | UnsetType = UNSET
    """Where ``timestamp_granularities`` asks for words."""


@frozen(kw_only=True)
class TextDeltaEvent:
    """Text that was added."""

    delta: Text
    type: Literal["transcript.text.delta"] = "transcript.text.delta"


@frozen(kw_only=True)
class TextDoneEvent:
    """The whole text."""

    text: Text
    usage: DurationUsage
    type: Literal["transcript.text.done"] = "transcript.text.done"


@frozen(kw_only=True)
class SpeechBody:
    """Text that is to be spoken."""

    input: Annotated[str, Meta(min_length=1, max_length=1 << 24)]
    """At most ``limits.max_speech_chars``."""
    model: Word | None = None
    voice: Word | None = None
    """One of the model's; absent is its own."""
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    """``pcm`` is 16 bit, little endian, one channel."""
    speed: Annotated[float, Meta(ge=0.25, le=4)] = 1.0
    language: Word | None = None
    """One of the model's; absent is its own, which may be to find it out."""
    instructions: Annotated[str, Meta(max_length=1 << 16)] | None = None
    """In words, how to speak."""
    sample_rate: Annotated[int, Meta(ge=8_000, le=48_000)] | None = None
    """Samples per second; absent is the model's own."""
    reference: Annotated[str, Meta(max_length=BIG)] | None = None
    """A recording of the voice to imitate: a sound file in base64, or a data URL of it."""
    reference_text: Annotated[str, Meta(max_length=1 << 16)] | None = None
    """All that is said in it."""
    speaker_only: bool = False
    """The voice is imitated, and not how it speaks there: ``reference_text`` is not needed."""
    stream_format: Literal["audio", "sse"] = "audio"
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None


@frozen(kw_only=True)
class Voices:
    """What may be asked of a model that speaks."""

    voices: Annotated[list[Word], Meta(max_length=BIG)]
    default_voice: Word | None
    """The voice of requests that name none; null: there is none, or the model needs no name."""
    languages: Annotated[list[Word], Meta(max_length=BIG)]
    default_language: Word | None
    sample_rate: Annotated[int, Meta(ge=1, le=BIG)]
    """Of the sound that the model makes."""


@frozen(kw_only=True)
class SpeechUsage:
    """Tokens of a text and of its sound."""

    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


@frozen(kw_only=True)
class SpeechDeltaEvent:
    """Sound that was added."""

    audio: Annotated[str, Meta(max_length=BIG)]
    """Base64."""
    type: Literal["speech.audio.delta"] = "speech.audio.delta"


@frozen(kw_only=True)
class SpeechDoneEvent:
    """The sound is whole."""

    usage: SpeechUsage
    type: Literal["speech.audio.done"] = "speech.audio.done"
