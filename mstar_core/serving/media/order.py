"""What passes between an API process and the process that decodes one sound."""

from __future__ import annotations

from mstar_core.serving.codec import Struct


class Order(Struct, frozen=True, kw_only=True):
    """Decode one sound; its file comes along as a descriptor."""

    max_seconds: float
    """Decoding stops there."""
    rate: int | None
    """Samples per second that are wanted; None: the sound's own."""
    memory: int
    """Address space in bytes, over what the process starts with."""
    timeout_s: float
    """Time after which the process ends, done or not."""


class Decoded(Struct, frozen=True, kw_only=True, tag="decoded"):
    """The sound is in the descriptor that comes along, float32, mono."""

    samples: int
    rate: int
    """Samples per second of what was decoded."""
    seconds: float
    """How long the sound lasts."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """The file is not decoded."""

    code: str
    """``invalid_audio`` or ``audio_too_long``."""
    message: str


Outcome = Decoded | Refused
