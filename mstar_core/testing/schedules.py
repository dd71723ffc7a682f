"""Random schedules, as data: an engine's settings, who arrives when, and what becomes of them."""

from __future__ import annotations

import random
from typing import Any

import attrs
from attrs import field, frozen

from mstar_core.engine.device import Lag


@frozen(kw_only=True)
class Limits:
    """How large drawn requests may be."""

    prompt: int = 60
    new: int = 40
    requests: int = 12


@frozen(kw_only=True)
class Setup:
    """The engine's settings: schedules with equal setups may share an engine."""

    max_rows: int
    token_budget: int
    min_chunk: int
    in_flight: int
    graphs: str
    resident: str
    capture_rows: tuple[int, ...]
    capture_tokens: tuple[int, ...]
    page_tokens: int
    num_pages: int | None
    lag: Lag | None
    row_check: bool
    mixed: str = "off"
    admission: str = "reserve"
    preempt: str = "auto"
    host_bytes: int | None = None
    prefix_cache: str = "off"
    snapshot_every: int = 512
    snapshots: int = 1

    def sets(self, pool: str, max_context: int = 128, state: str = "") -> tuple[str, ...]:
        """``--set`` texts; ``pool`` is the KV resource's path, as ``nodes.ledger.resources.kv``.

        ``state``: the same of the recurrent state of a model that has one.
        """
        snapshots = (
            f"{state}.snapshot_every={self.snapshot_every}",
            f"{state}.snapshots={self.snapshots}",
        )
        pages = "null" if self.num_pages is None else self.num_pages
        return (
            f"engine.max_rows={self.max_rows}",
            f"engine.token_budget={self.token_budget}",
            f"engine.min_chunk={self.min_chunk}",
            f"engine.in_flight={self.in_flight}",
            f"engine.graphs={self.graphs}",
            f"engine.resident={self.resident}",
            f"engine.mixed={self.mixed}",
            f"engine.admission={self.admission}",
            f"engine.preempt={self.preempt}",
            f"limits.host_offload_bytes={'null' if self.host_bytes is None else self.host_bytes}",
            f"engine.prefix_cache={self.prefix_cache}",
            f"engine.max_context={max_context}",
            "engine.capture.require=true",
            f"engine.capture.rows={list(self.capture_rows)}",
            f"engine.capture.tokens={list(self.capture_tokens)}",
            f"debug.row_check={str(self.row_check).lower()}",
            f"{pool}.page_tokens={self.page_tokens}",
            f"{pool}.num_pages={pages}",
            *(snapshots if state else ()),
        )


@frozen(kw_only=True)
class Planned:
    """One request of a schedule."""

    number: int
    """Within its schedule; also the ledger's salt of a request that is like no other."""
    turn: int
    """The turn before which it arrives."""
    prompt: int
    """Tokens."""
    new: int
    """``max_new_tokens``."""
    stop_token: int | None = None
    """The stop id is what it samples as this token (from 0)."""
    ignore_stop: bool = False
    priority: int = 0
    gated: bool = False
    abort_after: int | None = None
    """Turns from its arrival to its abort."""
    stop_after: int | None = None
    """Tokens after which a reader finds that it should have stopped."""
    stop_late: int = 0
    """Turns that the reader takes to say so."""
    trips: tuple[tuple[int, int], ...] = ()
    """(turns from its arrival to its offload, turns until it is called back) of each."""
    like: int | None = None
    """The family whose stream its prompt begins with."""
    shared: int = 0
    """Tokens of that stream, at most; the rest of the prompt is its own."""


@frozen(kw_only=True)
class Schedule:
    """What one run does."""

    seed: int
    setup: Setup
    requests: tuple[Planned, ...] = field()

    @property
    def num_items(self) -> int:
        """Items that it can launch at most."""
        return sum(planned.prompt + planned.new for planned in self.requests)

    @property
    def last_turn(self) -> int:
        """The last turn before which something is done to a request."""
        return max(
            p.turn + max(p.abort_after or 0, p.stop_late, *(sum(trip) for trip in p.trips), 0)
            for p in self.requests
        )

    @property
    def num_trips(self) -> int:
        """Offloads at most."""
        return sum(len(planned.trips) for planned in self.requests)


def draw_setup(seed: int, limits: Limits) -> Setup:
    """A setup in which the largest request of ``limits`` fits."""
    rng = random.Random(f"setup {seed}")
    again, tight = random.Random(f"prefix {seed}"), random.Random(f"pressure {seed}")
    admission, squeezed = tight.choice((("take", True), ("take", False), ("reserve", False)))
    max_rows = rng.choice((4, 8)) if squeezed else rng.choice((1, 2, 3, 4, 8))
    budget = rng.choice((8, 13, 16, 32, 64))
    page_tokens = 8 if squeezed else rng.choice((8, 16, 32))
    pages = -(-(limits.prompt + limits.new) // page_tokens)
    rows = {rng.randint(1, max_rows), rng.choice((1, max_rows))}
    wide = tight.choice((None, pages, pages + tight.randint(1, 2 * pages)))
    return Setup(
        max_rows=max_rows,
        token_budget=budget,
        min_chunk=rng.choice((1, 3, 8, budget)) if budget > 8 else rng.choice((1, 5, 8)),
        in_flight=rng.randrange(4),
        graphs=rng.choice(("off", "recorder", "recorder")),
        resident=rng.choice(("auto", "auto", "off")),
        capture_rows=tuple(sorted(rows)),
        capture_tokens=tuple(
            sorted({min(rng.choice((4, 8, 16)), budget), rng.choice((8, budget))})
        ),
        page_tokens=page_tokens,
        num_pages=pages if squeezed else wide,
        lag=rng.choice((None, Lag(), Lag(rng.randrange(1000)))),
        row_check=rng.choice((True, False)),
        mixed=rng.choice(("off", "on")),
        admission=admission,
        preempt=tight.choice(("auto", "offload", "recompute")),
        host_bytes=tight.choice((None, None, 0, 2000)),
        prefix_cache=again.choice(("auto", "auto", "off")),
        snapshot_every=page_tokens * again.choice((1, 1, 2)),
        snapshots=again.choice((1, 3, 8)),
    )


def draw_schedule(seed: int, setup: Setup, limits: Limits) -> Schedule:
    """The schedule of ``seed``: bursts and trickles, short and long, some cut short."""
    rng = random.Random(f"schedule {seed}")
    most = rng.randint(1, limits.requests)
    spread = rng.choice((0, 1, 4, 12))
    longest = rng.choice((4, limits.prompt)), rng.choice((3, limits.new))
    turn, requests = 0, []
    for number in range(1, most + 1):
        turn += rng.randint(0, spread)
        requests.append(_draw_request(rng, number, turn, longest))
    return Schedule(seed=seed, setup=setup, requests=_alike(seed, _with_trips(seed, requests)))


def _alike(seed: int, requests: tuple[Planned, ...]) -> tuple[Planned, ...]:
    """The same, where in three of four schedules most prompts begin like others."""
    rng = random.Random(f"alike {seed}")
    chance = rng.choice((0, 0.5, 0.8, 1))

    def likeness(prompt: int) -> dict[str, Any]:
        if rng.random() >= chance:
            return {}
        return {"like": rng.randrange(2), "shared": rng.choice((prompt, rng.randint(0, prompt)))}

    return tuple(attrs.evolve(planned, **likeness(planned.prompt)) for planned in requests)


def _with_trips(seed: int, requests: list[Planned]) -> tuple[Planned, ...]:
    """The same, where in every second schedule some are offloaded in the middle."""
    rng = random.Random(f"trips {seed}")
    chance = rng.choice((0, 0.5))

    def trips() -> tuple[tuple[int, int], ...]:
        count = rng.choice((1, 1, 2)) if rng.random() < chance else 0
        return tuple((rng.randint(0, 40), rng.randint(0, 15)) for _ in range(count))

    return tuple(attrs.evolve(planned, trips=trips()) for planned in requests)


def _draw_request(rng: random.Random, number: int, turn: int, longest: tuple[int, int]) -> Planned:
    new = rng.randint(1, longest[1])

    def sometimes(chance: float, low: int, high: int) -> int | None:
        value = rng.randint(low, high)
        return value if rng.random() < chance else None

    return Planned(
        number=number,
        turn=turn,
        prompt=rng.randint(1, longest[0]),
        new=new,
        stop_token=sometimes(0.4, 0, new - 1),
        ignore_stop=rng.random() < 0.1,
        gated=rng.random() < 0.2,
        priority=rng.choice((0, 0, 0, 1, -1)),
        abort_after=sometimes(0.15, 0, 40),
        stop_after=sometimes(0.25, 0, new),
        stop_late=rng.randint(0, 5),
    )
