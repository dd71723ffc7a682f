"""The line: who is admitted next. Admission is an act of taking: whole, or nothing is held.

::

    in line, by rank      [ A ][ B ][ C ][ D ]       A does not fit: B may go first,
    A may be passed         15 times more            at most PASSES times

A *rank* is the turn of arrival, moved ahead by ``AGE_TURNS`` for each unit of priority. So a
request is served after one of higher priority only if that arrives within a known time, and two
requests keep their order for ever: in line, when one must yield, and among those that come back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from mstar_core.sched.request import RequestState
from mstar_core.step import Shortage

AGE_TURNS = 512
"""Turns of waiting that weigh as much as one unit of priority."""
PASSES = 16
"""How often others may go before a request that waits and does not fit."""
LOOKAHEAD = 8
"""How many that do not fit are asked in a turn."""


def rank_of(turn: int, priority: int, number: int) -> tuple[int, int]:
    """The lower, the earlier: ``number`` settles what arrived in one turn."""
    return turn - AGE_TURNS * priority, number


def by_rank(state: RequestState) -> tuple[int, int]:
    """For sorting."""
    return state.rank


class Line:
    """Requests that wait to be admitted, by rank."""

    def __init__(self, max_running: int) -> None:
        self.max_running = max_running
        self.num_tokens = 0
        """Tokens that those who wait ask for: prompts and new ones."""
        self._line: list[RequestState] = []

    def __len__(self) -> int:
        return len(self._line)

    def join(self, state: RequestState) -> None:
        """Queue by rank."""
        self.num_tokens += state.num_tokens
        insort(self._line, state, key=by_rank)

    def leave(self, state: RequestState) -> None:
        """Give the place in the line up (aborted while waiting)."""
        self._take(self.position(state))

    def position(self, state: RequestState) -> int:
        """How many are before ``state``, which waits."""
        return bisect_left(self._line, state.rank, key=by_rank)

    def admit(
        self,
        running: int,
        ask: Callable[[RequestState], Shortage | None],
        away: Sequence[RequestState] = (),
    ) -> Iterator[RequestState]:
        """Requests to open now, in order; the caller opens each before it asks for the next.

        ``away``: those that wait to come back, by rank; they are passed by the same rule.
        """
        at = 0
        while at < len(self._line) and running < self.max_running:
            state = self._line[at]
            before = [*(a for a in away if a.rank < state.rank), *self._line[:at]]
            if any(other.passed >= PASSES for other in before):
                return
            if ask(state) is None:
                passed(before)
                running += 1
                self._take(at)
                yield state
            elif at + 1 == LOOKAHEAD:
                return
            else:
                at += 1

    def _take(self, at: int) -> None:
        state = self._line.pop(at)
        self.num_tokens -= state.num_tokens


def passed(before: Sequence[RequestState]) -> None:
    """Somebody went before these."""
    for state in before:
        state.passed += 1
