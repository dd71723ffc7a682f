"""The choices of one request, run together: their pieces as they come, their counts at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from attrs import define

from mstar_core.model.front import Front
from mstar_core.serving.asking import num_prompt_tokens
from mstar_core.serving.choices import Choice, Piece
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.fields import (
    CompletionDetails,
    PromptDetails,
    Timings,
    Usage,
)
from mstar_core.serving.streaming import over, submitted

Tell = Callable[[Choice, Piece], None]


@define(kw_only=True, eq=False)
class Run:
    """All choices of one HTTP request."""

    exchange: Exchange
    front: Front
    choices: Sequence[Choice]
    submitted_s: float = 0.0
    """Seconds from the request's start until the engine had its first choice."""
    queued_s: float = 0.0
    """Seconds at the engine's door, of the first choice."""
    first_s: float = 0.0
    """Seconds from the request's start until its first tokens."""
    ended_s: float = 0.0
    """Until its last choice was over."""
    used: Usage | None = None
    """Tokens of all choices, once they are over; a prompt that has several counts once."""

    async def to_end(self, tell: Tell) -> None:
        """Run them to their ends, and ``tell`` each piece. One that fails ends all: ApiError.

        A choice is handed to the engine when it begins: the first of its prompt at once, the
        others once that one has begun, so that the prompt is computed once.
        """
        if len(self.choices) == 1:
            await self._follow(self.choices[0], tell)
        else:
            tasks = [asyncio.ensure_future(self._follow(each, tell)) for each in self.choices]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
            finally:
                await over(*tasks)
        self.ended_s = self._now_s()
        first = self.choices[0].ended
        if first is not None and first.queued_s is not None:
            self.queued_s = first.queued_s
            self.exchange.line["queue_ms"] = first.queued_s * 1000
        self.used = usage = self._usage()
        self.exchange.line.update(
            outcome=self.choices[0].finish,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens,
            output_tokens=usage.completion_tokens,
        )

    async def _follow(self, choice: Choice, tell: Tell) -> None:
        if choice.first is not None:
            await choice.first.began.wait()
        with submitted(self.exchange, choice.request) as generation:
            self.submitted_s = self.submitted_s or self._now_s()
            while choice.ended is None:
                arrived = await generation.arrived()
                if not choice.began.is_set():
                    choice.began.set()
                    self._first()
                piece = choice.take(arrived)
                if choice.must_stop:
                    generation.stop(choice.kept)
                if piece:
                    tell(choice, piece)
                if choice.failed is not None:
                    raise choice.failed

    def _first(self) -> None:
        if not self.first_s:
            self.first_s = self._now_s()
            self.exchange.line["ttft_ms"] = self.first_s * 1000

    def _now_s(self) -> float:
        return time.perf_counter() - self.exchange.started

    def _usage(self) -> Usage:
        leading = [choice for choice in self.choices if choice.first is None]
        prompt = sum(num_prompt_tokens(choice.request) for choice in leading)
        kept = sum(choice.kept for choice in self.choices)
        cached = sum(choice.ended.cached_tokens for choice in leading if choice.ended)
        thought = sum(
            len(self.front.encode("".join(choice.reasoning)))
            for choice in self.choices
            if any(choice.reasoning)
        )
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=kept,
            total_tokens=prompt + kept,
            prompt_tokens_details=PromptDetails(cached_tokens=cached),
            completion_tokens_details=CompletionDetails(reasoning_tokens=min(thought, kept)),
        )

    def timings(self) -> Timings:
        """Where the time went, in parts that add up."""
        until_first_s = self.first_s - self.submitted_s
        queued_s = min(self.queued_s, until_first_s)
        return Timings(
            prepare_ms=self.submitted_s * 1000,
            queue_ms=queued_s * 1000,
            prefill_ms=(until_first_s - queued_s) * 1000,
            decode_ms=(self.ended_s - self.first_s) * 1000,
            total_ms=self.ended_s * 1000,
        )
