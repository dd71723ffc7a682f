"""``/v1/chat/completions``: messages in, one more message out."""

from __future__ import annotations

from typing import Annotated, Literal

from attrs import field, frozen

from mstar_core.serving.codec import UNSET, Meta, UnsetType
from mstar_core.serving.protocol import fields
from mstar_core.serving.protocol.fields import (
    BIG,
    Count,
    FinishReason,
    Free,
    Made,
    Sampled,
    StopReason,
    Text,
    Word,
)

NO_OPS: dict[str, tuple[object, ...]] = {
    **fields.NO_OPS,
    "audio": (None,),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "web_search_options": (None,),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "parallel_tool_calls": (None, True),
    "include_reasoning": (None, True),
    "verbosity": (None, "medium"),
    "service_tier": (None, "auto", "default"),
    "chat_template": (None,),
}
"""Fields that are known and not offered, and their values that ask for nothing."""
Byte = Annotated[int, Meta(ge=0, le=255)]
Logprob = Annotated[float, Meta(ge=-9999, le=0)]


@frozen(kw_only=True)
class Part:
    """A part of a message; which types there are is for the model to say."""

    type: Word
    text: Text | None = None


@frozen(kw_only=True)
class CalledFunction:
    """What an earlier answer called."""

    name: Word
    arguments: Text
    """JSON text of an object."""


@frozen(kw_only=True)
class ToolCall:
    """A call that an answer made."""

    id: Word
    type: Literal["function"] = "function"
    function: CalledFunction


@frozen(kw_only=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[Part], Meta(max_length=1024)] | None = None
    name: Word | None = None
    reasoning_content: Text | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=128)] | None = None
    tool_call_id: Word | None = None


@frozen(kw_only=True)
class Function:
    """A function that the model may call."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: Text | None = None
    parameters: Free | None = None
    """JSON Schema of its arguments. The model is shown it; nothing enforces it."""
    strict: bool | None = None


@frozen(kw_only=True)
class Tool:
    """A tool that the model may use."""

    type: Literal["function"]
    function: Function


@frozen(kw_only=True)
class NamedFunction:
    """The name of a function."""

    name: Word


@frozen(kw_only=True)
class NamedTool:
    """A tool that must be used: not offered."""

    type: Literal["function"]
    function: NamedFunction


@frozen(kw_only=True)
class ResponseFormat:
    """The form of the answer; ``text`` is what there is."""

    type: Literal["text", "json_object", "json_schema"]


@frozen(kw_only=True)
class ChatBody(Sampled):
    """A request to answer a conversation."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=65536)]
    max_completion_tokens: Annotated[int, Meta(ge=1, le=BIG)] | None = None
    """The same as ``max_tokens``."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """``none`` switches thinking off, all others switch it on."""
    chat_template_kwargs: Free | None = None
    """``enable_thinking`` alone, true or false; it wins over ``reasoning_effort``."""


@frozen(kw_only=True)
class TopLogprob:
    """A token that might have come."""

    token: Text
    logprob: Logprob
    bytes: Annotated[list[Byte], Meta(max_length=BIG)]
    """Its own bytes in UTF-8, which may be a part of a character; ``token`` has U+FFFD there."""


@frozen(kw_only=True)
class TokenLogprob(TopLogprob):
    """A generated token."""

    top_logprobs: Annotated[list[TopLogprob], Meta(max_length=20)]


@frozen(kw_only=True)
class ChatLogprobs:
    """One entry per generated token, those of reasoning and of calls too."""

    content: Annotated[list[TokenLogprob], Meta(max_length=BIG)]
    refusal: None = None


@frozen(kw_only=True)
class Answered:
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: Text | None
    """None where there are calls and nothing was said besides."""
    reasoning_content: Text | UnsetType = field(default=UNSET)
    tool_calls: Annotated[list[ToolCall], Meta(max_length=BIG)] | UnsetType = field(default=UNSET)


@frozen(kw_only=True)
class ChatChoice:
    """One answer."""

    index: Count
    message: Answered
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: StopReason


@frozen(kw_only=True)
class ChatCompletion(Made):
    """An answer of ``/v1/chat/completions``."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: Annotated[list[ChatChoice], Meta(max_length=128)]
