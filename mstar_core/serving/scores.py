"""Log-probabilities as the two text routes tell them: the texts and the bytes of tokens."""

from __future__ import annotations

from collections.abc import Iterable

from mstar_core.model.front import Front
from mstar_core.serving.choices import Scored
from mstar_core.serving.protocol.chat import ChatLogprobs, TokenLogprob, TopLogprob
from mstar_core.serving.protocol.completions import TextLogprobs

LEAST = -9999.0
"""Told for what is less likely, or impossible: JSON has no infinity."""


def chat_logprobs(front: Front, scored: Iterable[Scored]) -> ChatLogprobs:
    """Of ``/v1/chat/completions``."""
    content = []
    for each in scored:
        own = _likely(front, each.token, each.logprob)
        tops = [_likely(front, token, logprob) for token, logprob in each.top]
        content.append(
            TokenLogprob(token=own.token, logprob=own.logprob, bytes=own.bytes, top_logprobs=tops)
        )
    return ChatLogprobs(content=content)


def text_logprobs(front: Front, scored: Iterable[Scored], offset: int = 0) -> TextLogprobs:
    """Of ``/v1/completions``; ``offset``: characters of the token texts that came before."""
    tokens, offsets, logprobs, tops = [], [], [], []
    for each in scored:
        text = _text(front, each.token)
        tokens.append(text)
        offsets.append(offset)
        offset += len(text)
        logprobs.append(max(each.logprob, LEAST))
        tops.append({_text(front, token): max(value, LEAST) for token, value in each.top})
    return TextLogprobs(
        tokens=tokens, token_logprobs=logprobs, top_logprobs=tops, text_offset=offsets
    )


def _text(front: Front, token: int) -> str:
    return front.token_bytes(token).decode(errors="replace")


def _likely(front: Front, token: int, logprob: float) -> TopLogprob:
    said = front.token_bytes(token)
    return TopLogprob(
        token=said.decode(errors="replace"), logprob=max(logprob, LEAST), bytes=list(said)
    )
