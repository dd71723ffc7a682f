"""What a route sees of the engine: a state, and generations that it reads in batches of tokens.

The engine is in another process (:mod:`mstar_core.serving.remote`); in a test it may be in this one
(``mstar_core.testing.serving``). All calls are made on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from attrs import field, frozen

from mstar_core.model.front import Request
from mstar_core.model.walks import Reported
from mstar_core.text.stream import FinishReason

NO_ITEMS: Mapping[str, np.ndarray] = MappingProxyType({})


@frozen(kw_only=True)
class EngineState:
    """Where the engine is, as ``/ready`` says it."""

    phase: str = "starting"
    """``starting``, a phase of the warmup, ``ready``, ``stalled``, ``restarting``, ``draining``."""
    done: int = 0
    total: int = 0
    eta_s: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return self.phase == "ready"


@frozen(kw_only=True)
class Ended:
    """How a generation ended."""

    reason: FinishReason
    prompt_items: int = 0
    generated: int = 0
    """Tokens that were kept."""
    cached_tokens: int = 0
    preemptions: int = 0
    queued_s: float | None = None
    """Seconds at the engine's door until it was let in; None for one that never was."""
    error: Mapping[str, str] | None = None
    """Where / got / want / fix, for ``error``: the request was refused at the door, or failed."""
    code: str | None = None
    """A code of ``serving.errors`` where it was not the request's own fault; None for one that was
    refused at the engine's door."""
    stop_logprob: float | None = None
    """Of the stop id that ended it; None where none did."""
    reported: Mapping[str, Reported] = field(factory=dict)
    """What the model reports of the request, by name."""


@frozen(kw_only=True)
class Arrived:
    """Everything that came since the last look: tokens and items in order, and at last the end."""

    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    """Natural, one per token, where the request asked for log-probabilities; else empty."""
    tops: Sequence[Sequence[tuple[int, float]]] = ()
    """Per token its likeliest (id, logprob), where the request asked for them; else empty."""
    items: Mapping[str, np.ndarray] = field(default=NO_ITEMS, eq=False)
    """What came out of its stream, by the name of an output: ``[items, *shape]``."""
    ended: Ended | None = field(default=None)


class Generation(Protocol):
    """One request inside the engine. Whoever leaves it without its end must ``abort`` it."""

    async def arrived(self) -> Arrived:
        """Wait until something has come, and take all of it. Not called again after the end."""
        ...

    def stop(self, accepted: int) -> None:
        """The text ended after ``accepted`` tokens (a stop string); the end still arrives."""
        ...

    def abort(self) -> None:
        """End it now; idempotent, and harmless behind the end."""
        ...


class Link(Protocol):
    """The way to an engine."""

    @property
    def state(self) -> EngineState: ...

    def submit(self, request: Request, *, group: str) -> Generation:
        """Hand a request in; ``group`` names the HTTP request that it belongs to.

        Raises ApiError: ``not_ready``, ``draining`` or ``overloaded``. A refusal at the engine's
        door arrives as the generation's end.
        """
        ...

    async def cancel(self, group: str) -> int:
        """Abort all live requests of ``group``, whichever API process has them; how many."""
        ...

    def stats(self) -> Mapping[str, Any]:
        """The engine's counts as it last told them (``Engine.stats``); empty before the first."""
        ...
