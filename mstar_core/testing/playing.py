"""Playing one schedule on an engine, turn by turn, and what is wrong with how it went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
import torch
from attrs import define, field, frozen

from mstar_core.engine.core import EngineCore
from mstar_core.engine.events import FinishEvent, TokenEvent
from mstar_core.model.front import Request
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.state import StateResource
from mstar_core.testing.schedules import Planned, Schedule, Setup

OpenCore = Callable[[Setup], EngineCore]
MakeRequest = Callable[[Planned], Request]
Oracle = Callable[[Request], list[int]]
"""The ``max_new_tokens`` greedy tokens that follow the request's prompt, stop ids ignored."""


@frozen(eq=False)
class Subject:
    """What is fuzzed: how to open an engine, and what is right."""

    open_core: OpenCore
    make_request: MakeRequest
    oracle: Oracle


@define(eq=False)
class Case:
    """One request under way, and what is known of it."""

    planned: Planned
    request: Request
    right: list[int]
    """Every token, up to its natural end."""
    reason: str
    """Why it ends there."""
    tokens: list[int] = field(factory=list)
    finishes: list[FinishEvent] = field(factory=list)
    told_at: int | None = None
    """The turn in which the reader saw the token that it stops at."""

    @classmethod
    def of(cls, planned: Planned, subject: Subject) -> Case:
        """The request, its stop id included, and its natural end."""
        request = subject.make_request(planned)
        right, reason = subject.oracle(request), "length"
        if planned.stop_token is not None:
            stop = right[planned.stop_token]
            request = attrs.evolve(
                request, stop_ids=frozenset({stop}), ignore_stop_ids=planned.ignore_stop
            )
            if not planned.ignore_stop:
                right, reason = right[: right.index(stop)], "stop"
        return cls(planned, request, right, reason)

    def act(self, core: EngineCore, turn: int) -> None:
        """What befalls the request before ``turn``."""
        planned, at = self.planned, turn - self.planned.turn
        if at == 0:
            core.submit(self.request)
        if planned.abort_after is not None and at == planned.abort_after:
            core.abort(self.request.id)
        for leaves, stays in planned.trips:
            if at == leaves:
                core.offload(self.request.id)
            if at == leaves + stays:
                core.reload(self.request.id)
        if planned.stop_after is None or at < 0:
            return
        if self.told_at is None and len(self.tokens) >= planned.stop_after:
            self.told_at = turn
        if self.told_at is not None and turn == self.told_at + planned.stop_late:
            core.stop(self.request.id, planned.stop_after)

    @property
    def num_again(self) -> int:
        """Items that were run again at most, since the request yielded its memory."""
        yielded = sum(finish.preemptions for finish in self.finishes)
        return yielded * (self.planned.prompt + self.planned.new)

    def complaints(self) -> Iterator[str]:
        """What is wrong with how it ended."""
        name = self.request.id
        if len(self.finishes) != 1:
            yield f"{name}: {len(self.finishes)} finish events"
            return
        finish, kept = self.finishes[0], self.tokens[: self.finishes[0].generated]
        if self.tokens != self.right[: len(self.tokens)]:
            yield f"{name}: tokens {self.tokens}, want {self.right}"
        allowed = {(self.reason, len(self.right))}
        if self.planned.abort_after is not None:
            allowed.add(("abort", len(self.tokens)))
        if self.planned.stop_after is not None:
            allowed.add(("stop", self.planned.stop_after))
        if (finish.reason, finish.generated) not in allowed:
            yield f"{name}: ended by {finish.reason} after {finish.generated}, want {allowed}"
        if len(kept) != finish.generated:
            yield f"{name}: {len(kept)} token events, {finish.generated} generated"
        if finish.prompt_items != self.planned.prompt:
            yield f"{name}: {finish.prompt_items} prompt items, want {self.planned.prompt}"
        if not 0 <= finish.cached_tokens < self.planned.prompt:
            yield f"{name}: {finish.cached_tokens} of {self.planned.prompt} tokens are cached"


def play(core: EngineCore, schedule: Schedule, subject: Subject) -> list[str]:
    """Play ``schedule`` to its end; complaints, none if all is right."""
    cases = {case.request.id: case for case in (Case.of(p, subject) for p in schedule.requests)}
    dropped, rows = core.dropped_rows, core.lifecycle.counts.rows
    last, turn = schedule.last_turn, 0
    bound = last + 2 * schedule.num_items + 10 * schedule.num_trips + 10
    while turn <= last or not core.idle:
        if turn > bound:
            return [f"not over after {turn} turns: {core.stats()}"]
        for case in cases.values():
            case.act(core, turn)
        core.turn()
        early = list(freed_early(core))
        if early:
            return early
        for event in core.drain():
            case = cases[event.request]
            if isinstance(event, TokenEvent):
                if case.finishes:
                    return [f"{event.request}: a token after its finish"]
                case.tokens.append(event.token)
            elif isinstance(event, FinishEvent):
                case.finishes.append(event)
        turn += 1
    wrong = [text for case in cases.values() for text in case.complaints()]
    wrong += leftovers(core, core.dropped_rows - dropped, list(cases.values()))
    again = sum(case.num_again for case in cases.values())
    if core.lifecycle.counts.rows - rows > schedule.num_items + again:
        wrong.append(
            f"{core.lifecycle.counts.rows - rows} rows for {schedule.num_items} + {again} items"
        )
    return wrong


def freed_early(core: EngineCore) -> Iterator[str]:
    """Pools in which less cools than requests are over that steps in flight still name.

    With one stream no token would show it: the next owner writes behind those steps.
    """
    for name, node in core.nodes.items():
        entries = [entry for entry in core._flight if entry.step.node == name]
        over = {row.state.id for entry in entries for row in entry.rows if row.state.over}
        for key, resource in node.resources.items():
            pool = resource.table.pool if isinstance(resource, KVResource) else None
            if isinstance(resource, CarryResource | StateResource):
                pool = resource.ids
            if pool is not None and pool.num_cooling < len(over):
                yield f"{name}.{key}: {pool.num_cooling} places cool, want {len(over)} at least"


def leftovers(core: EngineCore, dropped: int, cases: Sequence[Case]) -> Iterator[str]:
    """What an idle engine must not hold, and rows that ran in vain beyond the steps in flight."""
    held = {what: pair for what, pair in core.held().items() if pair[0] != pair[1]}
    if held:
        yield f"not given back (free, total): {held}"
    if core.fences.num_cooling:
        yield f"{core.fences.num_cooling} places still cool"
    if core.table.num_free != core.table.num_handles:
        yield f"{core.table.num_handles - core.table.num_free} handles not recycled"
    early = sum(case.finishes[0].reason != "length" for case in cases if case.finishes)
    if dropped > early * core.in_flight:
        yield f"{dropped} rows dropped, want at most {core.in_flight} for each of {early}"
    check = core.lifecycle.check
    if check is not None and check.counts.mismatches:
        yield f"{check.counts.mismatches} cells of device tables differ: {check.counts.first}"


def poison(core: EngineCore, fill: float = torch.nan) -> None:
    """Fill every page, slot and snapshot with ``fill``, so that reading what nobody wrote shows.

    Blocks of whole numbers get a large one in place of NaN.
    """
    for node in core.nodes.values():
        for resource in node.resources.values():
            pools: list[torch.Tensor] = []
            if isinstance(resource, KVResource):
                pools += resource.pool.both
            if isinstance(resource, StateResource):
                pools += resource.pool.blocks.values()
                if resource.snapshots is not None:
                    pools += resource.snapshots.blocks.values()
            for pool in pools:
                pool.fill_(fill if pool.is_floating_point() or fill == fill else 1 << 40)
