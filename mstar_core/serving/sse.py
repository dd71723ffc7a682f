"""Server-sent events: one JSON value an event, which any way of splitting lines leaves whole."""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
"""The event behind the last of a stream that went well; a stream that failed has none."""
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: it says nothing, and nobody takes the connection for dead."""

_BREAKS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
"""Line breaks of Unicode that JSON leaves as they are, and some clients split lines at."""


def event(json: bytes) -> bytes:
    """``json`` (UTF-8, on one line) as an event."""
    return b"data: " + unbroken(json) + b"\n\n"


def unbroken(json: bytes) -> bytes:
    """The same JSON, without a character that is a line break to anybody."""
    if not json.isascii():
        for text, escaped in _BREAKS:
            json = json.replace(text, escaped)
    return json
