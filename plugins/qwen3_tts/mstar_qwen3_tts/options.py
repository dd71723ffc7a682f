"""``model.options`` of a Qwen3-TTS deployment."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import about, whole, words


@frozen(kw_only=True)
class Qwen3TTSOptions:
    """What a request that does not say is taken to mean, and what it may hold."""

    default_voice: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about("the voice of requests that name none, such as vivian"),
    )
    default_language: str = field(
        default="auto",
        validator=words,
        metadata=about("the language of requests that name none, such as english"),
    )
    chunks: tuple[int, ...] = field(
        default=(1, 2, 4, 8, 16, 32),
        metadata=about(
            "frames that become sound at once: at first, then, …; the last number goes on. Sound "
            "begins sooner with small ones, and larger ones cost less"
        ),
    )
    captured_frames: tuple[int, ...] = field(
        default=(*range(1, 33), 64, 96, 128, 192, 256, 384, 512),
        metadata=about(
            "frames of the codec's steps that are captured, where graphs are; a step between two "
            "is padded to the larger, which may change the last bits of its sound"
        ),
    )
    part_chars: int = field(
        default=600,
        validator=whole(1, unit="characters"),
        metadata=about(
            "text that is spoken at once; what is longer is spoken in parts of whole sentences"
        ),
    )
    script: int = field(
        default=1024,
        validator=whole(2, unit="tokens"),
        metadata=about("text that a request may have where it is spoken word by word"),
    )
