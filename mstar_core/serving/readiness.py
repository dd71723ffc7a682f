"""Whether an API process takes requests: its front, the engine, and a warm-up through both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from attrs import define, field

from mstar_core.config.resolve import Resolved
from mstar_core.model.front import Front
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.link import EngineState
from mstar_core.serving.orders import State
from mstar_core.serving.remote import RemoteLink
from mstar_core.serving.routes.table import all_routes
from mstar_core.serving.startup import Laps
from mstar_core.serving.warming import MAKERS, warm_up

LOOK_S = 0.02
CUT_S = 2.0
"""Time in which requests that were cut off tell their clients."""


@define(kw_only=True, eq=False)
class Readiness:
    """What ``/ready`` and the gates of an API process say, kept true as things happen."""

    resolved: Resolved
    service: Service
    link: RemoteLink
    laps: Laps
    begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[Any]]
    """Runs a task whose error ends the process."""
    on_warm: Callable[[dict[str, Any]], None]
    """Told facts for the supervisor when the first warm-up is over."""
    is_said: asyncio.Event = field(factory=asyncio.Event)
    """Set once requests were taken for the first time."""
    _engine: State = field(factory=lambda: State("starting"))
    _front: Front | None = None
    _is_first: bool = True
    _is_warm: bool = False
    _is_draining: bool = False
    _warming: asyncio.Task[Any] | None = None

    def engine_is(self, state: State) -> None:
        """The supervisor says where the engine is."""
        self._engine = state
        self._update()

    def front_is(self, front: Front) -> None:
        """The front is loaded."""
        self._front = front
        self._update()

    async def drain(self, seconds: float) -> int:
        """Take nothing new, let open requests end for so long, then end them; how many those were.

        At once, whatever happens meanwhile, ``/ready`` says so.
        """
        self._is_draining = True
        self._update()
        await self._until_idle(time.monotonic() + seconds)
        cut = self.link.fail_all("draining")
        await self._until_idle(time.monotonic() + CUT_S)
        return cut

    def say(self) -> None:
        """Take requests, unless another process has yet to be ready for the first time."""
        is_alone = self.service.server.processes == 1
        if self._is_warm and (is_alone or self.service.start_up is not None):
            self.link.state = EngineState(phase="ready")
            self.is_said.set()

    def _update(self) -> None:
        """Say where the engine is, and warm up as soon as it and the front are there."""
        self._is_warm = False
        if self._warming is not None:
            self._warming.cancel()
            self._warming = None
        engine = self._engine
        if self._is_draining:
            self.link.state = EngineState(phase="draining")
        elif engine.phase != "ready":
            self.link.state = EngineState(
                phase=engine.phase, done=engine.done, total=engine.total, eta_s=engine.eta_s
            )
        elif self._front is None:
            self.link.state = EngineState(phase="front")
        else:
            self._warming = self.begin(self._warm_up(self._front, engine.max_context))

    async def _warm_up(self, front: Front, max_context: int) -> None:
        self._mark("wait")
        kinds = sorted(front.capabilities() & set(MAKERS))
        for done, kind in enumerate(kinds):
            self.link.state = EngineState(phase="warm-up", done=done, total=len(kinds))
            try:
                if not await warm_up(self.service, front, self.link, kind):
                    return  # the engine ended; its next state says more
            except ApiError:
                return
            self._mark(f"warm {kind}")
        if "audio" in front.capabilities():
            with suppress(ApiError):  # not installed: the routes say so
                self.service.decoder.start()
        self.service.front, self.service.card = front, self._card(front, max_context)
        self._is_warm = True
        self.say()
        if self._is_first:
            self._is_first = False
            self.on_warm(self._facts(self.service.card))

    async def _until_idle(self, end: float) -> None:
        while self.service.admission.open and time.monotonic() < end:
            await asyncio.sleep(LOOK_S)

    def _mark(self, phase: str) -> None:
        if self._is_first:
            self.laps.mark(phase)

    def _card(self, front: Front, max_context: int) -> ModelCard:
        before = self.service.card
        return ModelCard(
            name=self.service.server.model_name or self.resolved.file.stem,
            capabilities=front.capabilities(),
            max_context=max_context,
            created=int(time.time()) if before is None else before.created,
            traits=front.traits(),
        )

    def _facts(self, card: ModelCard) -> dict[str, Any]:
        """What the banner says of this process."""
        server, limits = self.service.server, self.service.limits
        offered = {
            route.path
            for route in all_routes()
            if route.capability is None or route.capability in card.capabilities
        }
        return {
            "model": card.name,
            "routes": sorted(offered if server.ui else offered - {"/"}),
            "limits": {
                "open requests": limits.max_open,
                "rows a step": self.resolved.config.engine.max_rows,
                "body bytes": limits.max_body_bytes,
            },
        }
