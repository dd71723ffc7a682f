"""How much is let in at once, and who is told to come back later: counting, and no waiting.

A request to the model passes the door before its body is read (open requests in all, and per key)
and asks again once it is known how much it wants (tokens, seconds of sound). What it holds comes
back when its ticket is given back, which the application does at the end of every request.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from mstar_core.config.limits import LimitsConfig
from mstar_core.serving.errors import ApiError
from mstar_core.serving.rates import Bucket, Clock, Pace


@define(kw_only=True, eq=False)
class Ticket:
    """One request's place in the server."""

    admission: Admission
    key: str
    tokens: int = 0
    audio_s: float = 0.0

    def take(self, *, tokens: int = 0, audio_s: float = 0.0) -> None:
        """Count so many more. Raises ApiError ``overloaded`` or ``limit_exceeded``."""
        self.admission.count(self, tokens, audio_s)


class Admission:
    """What the open requests of this process hold together.

    With several API processes each has an even share of every limit, rounded up.
    """

    def __init__(
        self, limits: LimitsConfig, processes: int = 1, clock: Clock = time.monotonic
    ) -> None:
        def share(whole: int | None) -> int | None:
            return None if whole is None else -(-whole // processes)

        self.max_open = share(limits.max_open) or 1
        self.max_per_key = share(limits.max_open_per_key)
        self.per_minute = share(limits.requests_per_minute)
        self.max_tokens = share(limits.max_open_tokens)
        self.max_audio_s = max(
            limits.max_open_audio_seconds / processes,
            min(limits.max_audio_seconds, limits.max_open_audio_seconds),
        )
        self.open = 0
        self.tokens = 0
        self.audio_s = 0.0
        self.by_key: Counter[str] = Counter()
        self._buckets: dict[str, Bucket] = {}
        self._clock = clock
        self._pace = Pace(clock)

    @contextmanager
    def door(self, key: str, headers: dict[str, str]) -> Iterator[Ticket]:
        """One open request of ``key`` (its label), from here to the end of the block.

        Where a key has a limit of requests per minute, ``headers`` are told of it. Raises ApiError
        ``overloaded`` or ``rate_limit_exceeded``.
        """
        self._let_in(key, headers)
        ticket = Ticket(admission=self, key=key)
        self.open += 1
        self.by_key[key] += 1
        try:
            yield ticket
        finally:
            self._let_out(ticket)

    def count(self, ticket: Ticket, tokens: int, audio_s: float) -> None:
        """``ticket`` holds so much more. Raises ApiError, and then counts nothing."""
        if self.max_tokens is not None and tokens > 0:
            self._fits(self.tokens, tokens, ticket.tokens, self.max_tokens, "tokens")
        if audio_s > 0:
            self._fits(self.audio_s, audio_s, ticket.audio_s, self.max_audio_s, "seconds of sound")
        self.tokens += tokens
        self.audio_s += audio_s
        ticket.tokens += tokens
        ticket.audio_s += audio_s

    def _let_in(self, key: str, headers: dict[str, str]) -> None:
        if self.open >= self.max_open:
            raise self._overloaded("The server has as many open requests as it takes.")
        if self.max_per_key is not None and self.by_key[key] >= self.max_per_key:
            raise ApiError(
                "rate_limit_exceeded",
                f"This key has {self.max_per_key} open requests, as many as it may.",
                retry_after_s=self._pace.wait_s(),
            )
        if self.per_minute is None:
            return
        bucket = self._buckets.setdefault(key, Bucket(self.per_minute, self._clock))
        wait_s = bucket.take()
        headers["x-ratelimit-limit-requests"] = str(self.per_minute)
        headers["x-ratelimit-remaining-requests"] = str(int(bucket.level))
        headers["x-ratelimit-reset-requests"] = f"{bucket.full_in_s:.3f}s"
        if wait_s > 0:
            message = f"This key may start {self.per_minute} requests a minute."
            raise ApiError("rate_limit_exceeded", message, retry_after_s=wait_s)

    def _let_out(self, ticket: Ticket) -> None:
        self.open -= 1
        self.by_key[ticket.key] -= 1
        if not self.by_key[ticket.key]:
            del self.by_key[ticket.key]
        self.tokens -= ticket.tokens
        self.audio_s = self.audio_s - ticket.audio_s if self.open else 0.0
        self._pace.ended()

    def _fits(self, held: float, more: float, own: float, most: float, unit: str) -> None:
        """Raise ApiError unless ``held + more`` is at most ``most``."""
        if own + more > most:
            message = f"The request asks for {own + more:g} {unit}; the server takes {most:g}."
            raise ApiError("limit_exceeded", message)
        if held + more > most:
            raise self._overloaded(f"Open requests hold as many {unit} as the server takes.")

    def _overloaded(self, message: str) -> ApiError:
        return ApiError("overloaded", message, retry_after_s=self._pace.wait_s())
