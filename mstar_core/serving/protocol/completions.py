"""``/v1/completions``: text that goes on."""

from __future__ import annotations

from typing import Annotated, Literal

from attrs import frozen

from mstar_core.serving.codec import Meta
from mstar_core.serving.protocol import fields
from mstar_core.serving.protocol.fields import (
    BIG,
    Count,
    FinishReason,
    Made,
    Sampled,
    StopReason,
    Text,
    TokenId,
)

MAX_CHOICES = 128
"""Prompts times ``n``."""
Ids = Annotated[list[TokenId], Meta(max_length=1 << 21)]
Logprob = Annotated[float, Meta(ge=-9999, le=0)]
Tops = Annotated[dict[Text, Logprob], Meta(max_length=64)]
NO_OPS: dict[str, tuple[object, ...]] = {
    **fields.NO_OPS,
    "suffix": (None, ""),
    "best_of": (None, 1),
    "response_format": (None, {"type": "text"}),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
}
"""Fields that are known and not offered, and their values that ask for nothing."""


@frozen(kw_only=True)
class CompletionBody(Sampled):
    """A request to continue one text or several."""

    prompt: Text | Annotated[list[Text | TokenId | Ids], Meta(max_length=1 << 21)]
    """A text, a list of texts, the ids of one prompt, or a list of lists of ids."""
    echo: bool | None = None
    """Give the prompt in front of the text; not together with ``logprobs``."""
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    """Log-probabilities of each token, and of so many of the likeliest."""


@frozen(kw_only=True)
class TextLogprobs:
    """One entry per generated token in each list."""

    tokens: Annotated[list[Text], Meta(max_length=BIG)]
    token_logprobs: Annotated[list[Logprob], Meta(max_length=BIG)]
    top_logprobs: Annotated[list[Tops], Meta(max_length=BIG)]
    text_offset: Annotated[list[Count], Meta(max_length=BIG)]
    """Characters of the token texts before this one."""


@frozen(kw_only=True)
class TextChoice:
    """One text."""

    index: Count
    text: Text
    logprobs: TextLogprobs | None
    finish_reason: FinishReason
    stop_reason: StopReason


@frozen(kw_only=True)
class Completion(Made):
    """An answer of ``/v1/completions``."""

    object: Literal["text_completion"] = "text_completion"
    choices: Annotated[list[TextChoice], Meta(max_length=MAX_CHOICES)]
