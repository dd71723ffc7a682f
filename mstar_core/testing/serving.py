"""A link to an engine in this process: routes under test without another process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mstar_core.engine import Engine
from mstar_core.engine.events import EngineEvent, FinishEvent, Result, TokenEvent
from mstar_core.model.front import Request
from mstar_core.serving.link import Arrived, Ended, EngineState


class LocalGeneration:
    """One request of a :class:`LocalLink`."""

    def __init__(self, link: LocalLink, request: Request, group: str) -> None:
        self._link = link
        self._request = request
        self._arrived: asyncio.Queue[EngineEvent] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def hear(event: EngineEvent) -> None:
            loop.call_soon_threadsafe(self._arrived.put_nowait, event)

        link.groups.setdefault(group, set()).add(self)
        link.engine._driver.submit(request, hear)

    async def arrived(self) -> Arrived:
        events = [await self._arrived.get()]
        while not self._arrived.empty():
            events.append(self._arrived.get_nowait())
        tokens = [event for event in events if isinstance(event, TokenEvent)]
        wants = self._request.sampling.logprobs is not None
        last = events[-1]
        ended = None
        if isinstance(last, FinishEvent):
            ended = Ended(
                reason=last.reason,
                prompt_items=last.prompt_items,
                generated=last.generated,
                cached_tokens=last.cached_tokens,
                preemptions=last.preemptions,
                error=last.error,
                queued_s=last.queued_s,
                code=_code(last),
                stop_logprob=last.stop_logprob,
                reported=last.reported,
            )
            for group in self._link.groups.values():
                group.discard(self)
        return Arrived(
            tokens=[event.token for event in tokens],
            logprobs=[event.logprob for event in tokens] if wants else [],
            tops=[event.top for event in tokens] if wants else [],
            items=Result.of(self._request.id, events).items,
            ended=ended,
        )

    def stop(self, accepted: int) -> None:
        self._link.engine.stop(self._request.id, accepted)

    def abort(self) -> None:
        self._link.engine.abort(self._request.id)


def _code(last: FinishEvent) -> str | None:
    if last.busy:
        return "overloaded"
    return "request_failed" if last.reason == "error" and not last.refused else None


class LocalLink:
    """A :class:`~mstar_core.serving.link.Link` over an open engine."""

    def __init__(self, engine: Engine, state: EngineState | None = None) -> None:
        self.engine = engine
        self.state = state or EngineState(phase="ready")
        self.groups: dict[str, set[LocalGeneration]] = {}

    def submit(self, request: Request, *, group: str) -> LocalGeneration:
        return LocalGeneration(self, request, group)

    async def cancel(self, group: str) -> int:
        live = list(self.groups.get(group, ()))
        for generation in live:
            generation.abort()
        return len(live)

    def stats(self) -> Mapping[str, Any]:
        return self.engine.stats()
