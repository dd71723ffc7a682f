"""Fields that routes of text share: bounded words and numbers, and how tokens are picked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from attrs import field, frozen

from mstar_core.serving.codec import UNSET, Meta, UnsetType

BIG = (1 << 53) - 1
"""The largest integer that every JSON reader keeps."""

Count = Annotated[int, Meta(ge=0, le=BIG)]
Text = Annotated[str, Meta(max_length=1 << 24)]
"""Text of any length that a body can hold; ``limits.max_text_chars`` bounds all of a request."""
Word = Annotated[str, Meta(min_length=1, max_length=256)]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Stop = Annotated[str, Meta(min_length=1, max_length=256)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
IdText = Annotated[str, Meta(pattern=r"^[0-9]{1,10}$")]
Label = Annotated[str, Meta(max_length=512)]
Free = Annotated[dict[Annotated[str, Meta(max_length=256)], Any], Meta(max_length=256)]
"""A JSON object of the client's own; ``limits.max_json_depth`` bounds its depth."""
Ms = Annotated[float, Meta(ge=0, le=1e12)]


NO_OPS: dict[str, tuple[object, ...]] = {
    "min_tokens": (None, 0),
    "skip_special_tokens": (None, True),
    "use_beam_search": (None, False),
    "prompt_logprobs": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "structured_outputs": (None,),
}
"""Fields that are known and not offered, and their values that ask for nothing."""


@frozen(kw_only=True)
class StreamOptions:
    """What a stream says besides its pieces."""

    include_usage: bool | None = None
    """One more event in front of the end, with ``usage`` and no choices."""
    continuous_usage_stats: bool | None = None
    """Not offered: false."""


@frozen(kw_only=True)
class Sampled:
    """Fields of a request for generated text."""

    model: Word | None = None
    """The ``id`` of the served model; absent is that one."""
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    """Answers, each with a seed of its own: ``seed`` and the numbers behind it."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=BIG)] | None = None
    """Absent: what the context has room for."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=BIG)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    logit_bias: Annotated[dict[IdText, Bias], Meta(max_length=300)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=16)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    """Higher is served earlier."""
    timings: bool | None = None
    """Say in the answer where its time went."""
    user: Label | None = None
    """Taken and not used, like those below."""
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    metadata: Annotated[dict[Word, Label], Meta(max_length=16)] | None = None
    store: bool | None = None


@frozen(kw_only=True)
class PromptDetails:
    """Of the prompt's tokens."""

    cached_tokens: Count
    """Taken over from earlier requests."""


@frozen(kw_only=True)
class CompletionDetails:
    """Of the answers' tokens."""

    reasoning_tokens: Count
    """The reasoning, as the tokenizer counts its text."""


@frozen(kw_only=True)
class Usage:
    """Tokens of a request, all its choices together; a prompt counts once."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


@frozen(kw_only=True)
class Timings:
    """Where the time of a request went; the first four add up to the last."""

    prepare_ms: Ms
    """From the request's head until the engine had it."""
    queue_ms: Ms
    """From then until its first choice was let in."""
    prefill_ms: Ms
    """From then to the first token."""
    decode_ms: Ms
    """From then to its last token."""
    total_ms: Ms


@frozen(kw_only=True)
class Made:
    """What every answer of generated text has."""

    id: Word
    created: Count
    """Unix seconds."""
    model: Word
    system_fingerprint: Word
    """Changes when the server may answer the same request with the same seed differently."""
    usage: Usage
    timings: Timings | UnsetType = field(default=UNSET)


FinishReason = Literal["stop", "length", "tool_calls"]
StopReason = Text | TokenId | None
"""The stop string or the stop id that ended the text, of those that the request named."""
