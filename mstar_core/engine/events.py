"""What the engine says about a request: tokens as they are read, then one finish. Numbers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from attrs import field, frozen

from mstar_core.errors import MstarError
from mstar_core.model.walks import Reported
from mstar_core.text.stream import FinishReason


@frozen(kw_only=True)
class TokenEvent:
    """One generated token, read and kept."""

    request: str
    token: int
    logprob: float
    """Natural logarithm, of the distribution after rules, bias and penalties."""
    top: tuple[tuple[int, float], ...] = ()
    """(id, logprob), most likely first, where the request asked for them."""


@frozen(kw_only=True)
class FinishEvent:
    """The last event of a request."""

    request: str
    reason: FinishReason
    """``stop`` (a stop id or an outside stop), ``length``, ``abort`` or ``error``."""
    prompt_items: int
    generated: int
    """Tokens that were kept."""
    cached_tokens: int = 0
    """Tokens of the prompt that were taken over from other requests, not computed."""
    preemptions: int = 0
    """How often the request yielded its memory to others."""
    error: Mapping[str, str] | None = None
    """Where / got / want / fix, for ``error``."""
    queued_s: float | None = None
    """Seconds that it waited until it was let in; None for one that never was."""
    refused: bool = False
    """It was never let in: ``error`` is about the request itself."""
    stop_logprob: float | None = None
    """Of the stop id that ended it, which is no token of it; None where none did."""
    reported: Mapping[str, Reported] = field(factory=dict)
    """What the model reports of it, by the names of its reported outputs."""
    busy: bool = False
    """With ``refused``: nothing is wrong with it, there was no room."""


@frozen(kw_only=True, eq=False)
class ItemsEvent:
    """What came out of a request's stream since the last: sound, while it is made."""

    request: str
    arrays: Mapping[str, np.ndarray]
    """By the name of an output that is told: ``[items, *shape]``, items in order, none twice."""


EngineEvent = TokenEvent | ItemsEvent | FinishEvent


def facts_of(where: str, error: Exception) -> dict[str, str]:
    """What a request is told of ``error``: its facts, or of a bug only that there is one."""
    if isinstance(error, MstarError):
        return error.facts()
    return {"where": where, "got": "an internal error", "want": "", "fix": "see the log"}


@frozen(kw_only=True)
class Result:
    """A whole request: its tokens and how it ended."""

    id: str
    ids: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    top: list[tuple[tuple[int, float], ...]] = field(factory=list)
    finish_reason: str = ""
    cached_tokens: int = 0
    """Tokens of the prompt that were not computed."""
    error: Mapping[str, str] | None = None
    stop_logprob: float | None = None
    """Of the stop id that ended it; None where none did."""
    reported: Mapping[str, Reported] = field(factory=dict)
    """What the model reports of it, by the names of its reported outputs."""
    items: Mapping[str, np.ndarray] = field(factory=dict, eq=False)
    """All that came out of its stream, by the names of the outputs that are told."""

    @classmethod
    def of(cls, request: str, events: Iterable[EngineEvent]) -> Self:
        """What all the ``events`` of a request come to; without a last one it failed."""
        tokens: list[TokenEvent] = []
        pieces: dict[str, list[np.ndarray]] = {}
        finish = None
        for event in events:
            if isinstance(event, TokenEvent):
                tokens.append(event)
            elif isinstance(event, ItemsEvent):
                for name, array in event.arrays.items():
                    pieces.setdefault(name, []).append(array)
            else:
                finish = event
        finish = finish or FinishEvent(
            request=request, reason="error", prompt_items=0, generated=len(tokens)
        )
        kept = tokens[: finish.generated]
        return cls(
            id=request,
            ids=[event.token for event in kept],
            logprobs=[event.logprob for event in kept],
            top=[event.top for event in kept],
            finish_reason=finish.reason,
            cached_tokens=finish.cached_tokens,
            error=finish.error,
            stop_logprob=finish.stop_logprob,
            reported=finish.reported,
            items={name: np.concatenate(arrays) for name, arrays in pieces.items()},
        )
