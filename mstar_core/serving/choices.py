"""One choice of an answer: tokens in as they arrive, pieces of text, reasoning and calls out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attrs import define, field, frozen

from mstar_core.model.answer import Answer, ToolCall
from mstar_core.model.front import Request
from mstar_core.serving.errors import ApiError
from mstar_core.serving.failures import failure
from mstar_core.serving.link import Arrived, Ended
from mstar_core.text import TextStream


@frozen
class Scored:
    """A token with its log-probability, and its likeliest alternatives with theirs."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


@define(eq=False)
class Piece:
    """What has come of one choice since its last piece."""

    content: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    scored: Sequence[Scored] = ()
    finish: str | None = None
    """The finish reason, in its last piece."""

    def __bool__(self) -> bool:
        return bool(
            self.content or self.reasoning or self.calls or self.scored or self.finish is not None
        )


@define(kw_only=True, eq=False)
class Choice:
    """One answer in the making. What comes out does not depend on how its tokens are grouped."""

    index: int
    request: Request
    text: TextStream
    answer: Answer
    echo: str = ""
    """Text that is told in front of its own."""
    first: Choice | None = None
    """The choice of the same prompt that goes ahead, so that the prompt is computed once."""
    began: asyncio.Event = field(factory=asyncio.Event)
    """Set once something has arrived."""
    kept: int = 0
    """Tokens up to its end."""
    ended: Ended | None = None
    failed: ApiError | None = None
    """Why it did not end by itself."""
    finish: str | None = None
    """The finish reason, once it is over."""
    stop: str | int | None = None
    """The stop string or stop id that ended the text."""
    num_calls: int = 0
    reasoning: list[str] = field(factory=list)
    must_stop: bool = False
    """The text has just ended at a stop, and the engine goes on until it is told."""

    def take(self, arrived: Arrived) -> Piece:
        """The piece that ``arrived`` makes; where the generation failed, ``failed`` says why."""
        was_finished = self.text.is_finished
        delta = self.text.push(arrived.tokens)
        self.must_stop = self.text.is_finished and not was_finished and arrived.ended is None
        text, kept = delta.text, delta.num_tokens
        self.kept += kept
        scored = [*map(Scored, arrived.tokens[:kept], arrived.logprobs, arrived.tops)]
        if arrived.ended is not None and not self.text.is_finished:
            self.failed = failure(arrived.ended)
        if arrived.ended is None or self.failed is not None:
            part = self.answer.push(text)
            self.num_calls += len(part.calls)
            if part.reasoning:
                self.reasoning.append(part.reasoning)
            return Piece(self._echoed(part.content), part.reasoning, part.calls, scored)
        self.ended = arrived.ended
        return self._last(text, scored, arrived.ended)

    def _last(self, text: str, scored: Sequence[Scored], ended: Ended) -> Piece:
        if not self.text.is_finished:
            text += self.text.finish(ended.reason).text
        end = self.text.finish()
        self.stop = end.stop
        parts = self.answer.push(text), self.answer.finish()
        calls = [call for part in parts for call in part.calls]
        self.num_calls += len(calls)
        reasoning = "".join(part.reasoning for part in parts)
        self.reasoning.append(reasoning)
        calling = "tool_calls" if self.num_calls else "stop"
        self.finish = "length" if end.finish_reason == "length" else calling
        content = self._echoed("".join(part.content for part in parts))
        return Piece(content, reasoning, calls, scored, self.finish)

    def _echoed(self, content: str) -> str:
        if self.echo:
            content, self.echo = self.echo + content, ""
        return content
