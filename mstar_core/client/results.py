"""What calls give: results, and the events of streams. Frozen, and typed where clients look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class Usage:
    """Tokens that were counted; also the last event of a stream that was asked for it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt, taken over from other requests."""


@frozen(kw_only=True)
class Choice:
    """One answer of a chat or completion."""

    index: int
    text: str
    finish_reason: str | None
    """``stop``, ``length``, ``tool_calls`` or another word of the server."""
    reasoning: str = ""
    """What the model thought, where the server keeps it apart."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    logprobs: Mapping[str, Any] | None = None
    """As the server wrote it."""


@frozen(kw_only=True)
class Completion:
    """What a chat or a completion gave."""

    id: str
    model: str
    choices: tuple[Choice, ...]
    usage: Usage
    request_id: str | None
    raw: Mapping[str, Any] = field(repr=False)
    """The whole answer."""

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text

    @property
    def finish_reason(self) -> str | None:
        """Why the first choice ended."""
        return self.choices[0].finish_reason


@frozen(kw_only=True)
class Delta:
    """More of one choice's text."""

    text: str
    index: int = 0
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    logprobs: Mapping[str, Any] | None = None


@frozen(kw_only=True)
class Finish:
    """One choice has ended."""

    reason: str
    index: int = 0


CompletionEvent = Delta | Finish | Usage
"""What a stream of a chat or completion gives."""


@frozen(kw_only=True)
class Transcript:
    """What was said; also the last event of its stream."""

    text: str
    """The words; for ``srt``, ``vtt`` and ``text`` the document as the server wrote it."""
    language: str | None = None
    duration: float | None = None
    """Seconds of sound."""
    segments: tuple[Mapping[str, Any], ...] = ()
    words: tuple[Mapping[str, Any], ...] = ()
    request_id: str | None = None
    raw: Mapping[str, Any] = field(factory=dict, repr=False)


TranscriptEvent = Delta | Transcript
"""What a stream of a transcription gives: pieces, then the whole."""


@frozen(kw_only=True)
class Model:
    """One entry of the list of models."""

    id: str
    owned_by: str = ""
    raw: Mapping[str, Any] = field(factory=dict, repr=False)
    """All that the server says of it: modalities, routes, limits."""


@frozen(kw_only=True)
class Readiness:
    """What a server says of its start."""

    ready: bool
    phase: str = ""
    done: int | float | None = None
    total: int | float | None = None
    eta_s: float | None = None
    raw: Mapping[str, Any] = field(factory=dict, repr=False)
