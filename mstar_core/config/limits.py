"""Every limit on what a request may ask for and on how much is let in, in one class."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import Bytes, about, number, whole


@frozen(kw_only=True)
class LimitsConfig:
    """What one request may ask for, and how much is let in at once: every limit there is."""

    max_prompt_tokens: int | None = field(
        default=None,
        validator=optional(whole(1, unit="tokens")),
        metadata=about("longest prompt taken, in tokens; null is what the context allows"),
    )
    max_new_tokens: int | None = field(
        default=None,
        validator=optional(whole(1, unit="tokens")),
        metadata=about("most tokens one request may ask for; null is what the context allows"),
    )
    max_waiting: int | None = field(
        default=None,
        validator=optional(whole(1, unit="requests")),
        metadata=about("requests that may wait to be admitted; null is any number"),
    )
    max_waiting_tokens: int | None = field(
        default=None,
        validator=optional(whole(1, unit="tokens")),
        metadata=about(
            "tokens that waiting requests may ask for together, prompts and new ones; null is any "
            "number"
        ),
    )
    host_offload_bytes: Bytes | None = field(
        default=None,
        validator=optional(whole(0, unit="bytes")),
        metadata=about(
            "host memory for requests that yield theirs; null is a quarter of what is free"
        ),
    )
    max_body_bytes: Bytes = field(
        default=32 << 20,
        validator=whole(1024, unit="bytes"),
        metadata=about("largest HTTP body, counted while it is received; more is a 413"),
    )
    max_json_depth: int = field(
        default=64,
        validator=whole(4, 512, "levels"),
        metadata=about("nesting of a JSON body"),
    )
    max_choices: int = field(
        default=8,
        validator=whole(1, 128, "choices"),
        metadata=about("most `n` of one request"),
    )
    max_messages: int = field(
        default=512,
        validator=whole(1, 65536, "messages"),
        metadata=about("messages of one chat"),
    )
    max_text_chars: int = field(
        default=1 << 20,
        validator=whole(1, unit="characters"),
        metadata=about("characters of all text in one request"),
    )
    max_speech_chars: int = field(
        default=10_000,
        validator=whole(1, unit="characters"),
        metadata=about("characters of one text to be spoken"),
    )
    max_audio_seconds: float = field(
        default=1800.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("longest sound that is decoded; decoding stops there"),
    )
    media_timeout_s: float = field(
        default=30.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("time in which one sound must be fetched, and again decoded"),
    )
    media_memory: Bytes = field(
        default=1 << 30,
        validator=whole(64 << 20, unit="bytes"),
        metadata=about(
            "address space of the process that decodes a sound, over what it starts with"
        ),
    )
    max_open: int = field(
        default=512,
        validator=whole(1, unit="requests"),
        metadata=about("requests in the server at once, waiting and running; more are a 429"),
    )
    max_open_tokens: int | None = field(
        default=None,
        validator=optional(whole(1, unit="tokens")),
        metadata=about(
            "tokens that open requests may ask for together, prompts and new ones; null is any "
            "number"
        ),
    )
    max_open_audio_seconds: float = field(
        default=7200.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("seconds of sound in open requests together"),
    )
    max_open_per_key: int | None = field(
        default=None,
        validator=optional(whole(1, unit="requests")),
        metadata=about("requests that one API key may have open; null is any number"),
    )
    requests_per_minute: int | None = field(
        default=None,
        validator=optional(whole(1, unit="requests")),
        metadata=about("requests that one API key may start in a minute; null is any number"),
    )
    request_timeout_s: float = field(
        default=600.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("time after which a request is ended with an error"),
    )
    body_timeout_s: float = field(
        default=60.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("time in which the body of a request must have arrived"),
    )
    max_unread_bytes: Bytes = field(
        default=1 << 20,
        validator=whole(4096, unit="bytes"),
        metadata=about(
            "text that waits for a client that does not read; past it the client is cut off"
        ),
    )
    unread_timeout_s: float = field(
        default=60.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("time for which a client may read nothing of what waits for it"),
    )
