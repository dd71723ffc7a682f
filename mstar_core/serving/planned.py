"""The plan of a sound, run over the link: its requests, and its segments as they are final."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mstar_core.model.front import Request
from mstar_core.model.segment import Segment
from mstar_core.model.transcription import Answered, Transcription
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.following import bounded, run, tokens_of
from mstar_core.serving.link import Arrived
from mstar_core.serving.streaming import over


async def planned(
    exchange: Exchange, plan: Transcription, tell: Callable[[list[Segment]], None]
) -> None:
    """Run ``plan`` to its end; ``tell`` gets segments as they are final, by time.

    However this is left, the plan's requests are over then. The most tokens that its requests may
    hold at the same time are counted, as they grow. Raises ApiError and RequestError.
    """
    running: dict[asyncio.Task[Answered], int] = {}
    counted = 0
    try:
        while True:
            for request in await asyncio.to_thread(plan.next):
                request = bounded(exchange, request)
                held = sum(running.values()) + tokens_of(request)
                if held > counted:
                    exchange.admit(tokens=held - counted)
                    counted = held
                task = asyncio.ensure_future(_answered(exchange, request))
                running[task] = tokens_of(request)
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del running[task]
                tell(plan.take(task.result()))
    finally:
        await over(*running)


async def _answered(exchange: Exchange, request: Request) -> Answered:
    """Run ``request`` to its end. Raises ApiError where it fails in the engine."""
    ids: list[int] = []
    logprobs: list[float] = []

    async def take(arrived: Arrived) -> None:
        ids.extend(arrived.tokens)
        logprobs.extend(arrived.logprobs)

    ended = await run(exchange, request, take)
    return Answered(
        id=request.id,
        ids=ids,
        logprobs=logprobs,
        stop_logprob=ended.stop_logprob,
        reported=ended.reported,
    )
