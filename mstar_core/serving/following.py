"""One request of the engine, followed to its end by whoever makes something of its tokens."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from mstar_core.model.front import Request
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.failures import failure
from mstar_core.serving.link import Arrived, Ended, Generation
from mstar_core.serving.streaming import submitted

Take = Callable[[Arrived], Awaitable[None]]


def bounded(exchange: Exchange, request: Request) -> Request:
    """``request``, no longer than the server allows."""
    most = exchange.service.limits.max_new_tokens
    if most is not None and request.max_new_tokens > most:
        request = attrs.evolve(request, max_new_tokens=most)
    return request


def tokens_of(request: Request) -> int:
    """What ``request`` may hold: its prompt and all that it may generate."""
    return max(map(len, request.arrays.values())) + request.max_new_tokens


async def run(exchange: Exchange, request: Request, take: Take) -> Ended:
    """Run ``request`` to its end, as :func:`followed` says."""
    with submitted(exchange, request) as generation:
        return await followed(exchange, generation, take)


async def followed(exchange: Exchange, generation: Generation, take: Take) -> Ended:
    """Give what arrives of ``generation`` to ``take``; how it ended, well.

    Fills the completion line, in which several requests add up. Raises ApiError where the request
    fails in the engine.
    """
    line = exchange.line
    while True:
        arrived = await generation.arrived()
        if arrived.tokens and "ttft_ms" not in line:
            line["ttft_ms"] = (time.perf_counter() - exchange.started) * 1000
        ended = arrived.ended
        if ended is not None and (error := failure(ended)) is not None:
            raise error
        await take(arrived)
        if ended is not None:
            _note(line, ended)
            return ended


def _note(line: dict[str, Any], ended: Ended) -> None:
    """How a request ended, into the completion line; the first of several has waited for all."""
    line["outcome"] = ended.reason
    if ended.queued_s is not None:
        line.setdefault("queue_ms", ended.queued_s * 1000)
    for name, more in (
        ("prompt_tokens", ended.prompt_items),
        ("cached_tokens", ended.cached_tokens),
        ("output_tokens", ended.generated),
    ):
        line[name] = line.get(name, 0) + more
