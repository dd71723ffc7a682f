"""Loads: how requests come and go, and what they came to under the row check."""

from __future__ import annotations

import attrs
from attrs import frozen

PAGES = "nodes.ledger.resources.kv"


@frozen(kw_only=True)
class Load:
    """How requests come and go; chances are per turn."""

    name: str
    sets: tuple[str, ...] = ()
    live: int = 8
    """Requests that are kept in the engine, in line or running."""
    arrivals: int = 64
    """Requests that arrive in one turn at most."""
    prompt: tuple[int, int] = (1, 24)
    new: tuple[int, int] = (20, 120)
    gated: bool = False
    offload: float = 0.0
    decoding: bool = False
    """Only requests that have decoded since they came (back), and so sit in a row, leave."""
    rest: int = 12
    """Turns that an offloaded request stays away at most."""
    abort: float = 0.0


LOADS = (
    Load(name="steady", new=(60, 200)),
    Load(
        name="pressure",
        sets=(f"{PAGES}.num_pages=60",),
        live=20,
        offload=0.3,
        decoding=True,
    ),
    Load(
        name="slots",
        sets=("engine.max_rows=64", "engine.capture.rows=[8]", "engine.token_budget=8",
              "engine.capture.tokens=[8]",
              "engine.min_chunk=4", "engine.in_flight=4"),
        live=64,
        gated=True,
    ),
    Load(
        name="chunks",
        sets=("engine.token_budget=16", "engine.min_chunk=4"),
        arrivals=1,
        prompt=(20, 90),
        offload=0.15,
    ),
    Load(name="aborts", live=12, new=(2, 60), abort=0.25),
)  # fmt: skip


@frozen(kw_only=True)
class Report:
    """What a load came to."""

    load: str
    rows: int
    """Rows checked."""
    steps: int
    mismatches: int
    displaced: int
    whole_rows: int
    offloads: int
    releases: int
    """Rows of the tables that offloads gave up."""
    requests: int
    refused: int
    """Requests that did not fit at once."""
    seconds: float

    def __str__(self) -> str:
        return "  ".join(
            f"{name} {value:.0f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in attrs.asdict(self).items()
        )
