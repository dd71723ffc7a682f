"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen

from mstar_core.serving.codec import Meta
from mstar_core.serving.protocol.chat import Message, Tool
from mstar_core.serving.protocol.fields import BIG, Count, Free, Text, TokenId, Word

Ids = Annotated[list[TokenId], Meta(max_length=BIG)]


@frozen(kw_only=True)
class TokenizeBody:
    """A text, or a conversation as ``/v1/chat/completions`` would hand it to the model."""

    model: Word | None = None
    prompt: Text | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=65536)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    chat_template_kwargs: Free | None = None


@frozen(kw_only=True)
class Tokenized:
    """The ids."""

    tokens: Ids
    count: Count
    max_model_len: Count
    """Tokens that the context has room for."""


@frozen(kw_only=True)
class DetokenizeBody:
    """Ids."""

    model: Word | None = None
    tokens: Annotated[list[TokenId], Meta(max_length=1 << 21)]


@frozen(kw_only=True)
class Detokenized:
    """Their text, special tokens left out."""

    prompt: Text
