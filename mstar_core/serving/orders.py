"""What the supervisor and its children say to each other.

::

    supervisor → child   Start · Connect · State · StartedUp · Drain · Stop · Scrape · Scraped
    child → supervisor   Phase · Ready · Beat · Drained · Failed · Scrape · Scraped
"""

from __future__ import annotations

from typing import Any, Literal

from mstar_core.serving import codec


class Start(codec.Struct, tag=True, frozen=True):
    """The first message to a child. An API process gets the listening socket with it."""

    config: str
    sets: list[str]
    """``KEY=VALUE``; the flags of the command are among them."""
    index: int = 0
    """Which API process, from 0."""
    offline: bool = False
    log_level: str = "info"
    log_format: Literal["text", "json"] = "text"
    late: bool = False
    """An API process that accepts nobody before it is ready, since others serve meanwhile."""
    spawned: float = 0.0
    """When the child was started, on the monotonic clock (seconds)."""


class Connect(codec.Struct, tag=True, frozen=True):
    """The way between API process ``api`` and the engine is new; what went before is over.

    With it come two descriptors: a stream socket whose other end the other process has, and the
    memory (a memfd of ``server.media_bytes``) that both map.
    """

    api: int


class State(codec.Struct, tag=True, frozen=True):
    """To API processes: where the engine is (see ``link.EngineState``)."""

    phase: str
    done: int = 0
    total: int = 0
    eta_s: float | None = None
    max_context: int = 0
    """Tokens, known from ``ready`` on."""


class StartedUp(codec.Struct, tag=True, frozen=True):
    """To API processes: all are ready. The start-up table (``startup.StartUp.as_dict``)."""

    table: dict[str, Any]


class Drain(codec.Struct, tag=True, frozen=True):
    """To API processes: take nothing new; what is open has so many seconds. → ``Drained``."""

    seconds: float


class Stop(codec.Struct, tag=True, frozen=True):
    """End now, with exit code 0."""


class Phase(codec.Struct, tag=True, frozen=True):
    """Start-up goes on: the phase, and how much of it is done (bytes, buckets, …)."""

    phase: str
    done: int = 0
    total: int = 0


class Ready(codec.Struct, tag=True, frozen=True):
    """The child serves. ``laps``: its start-up in order, as (phase, seconds)."""

    laps: list[tuple[str, float]]
    facts: dict[str, Any]
    """Of the engine ``max_context`` (tokens) and ``report``; of an API process ``model`` (name)
    and ``routes`` (paths)."""


class Beat(codec.Struct, tag=True, frozen=True):
    """Each half second. A busy engine whose ``turns`` stand still is hung, as is who is silent."""

    turns: int = 0
    busy: bool = False


class Drained(codec.Struct, tag=True, frozen=True):
    """Nothing is open any more. ``cut``: requests that had to be ended with an error."""

    cut: int = 0


class Failed(codec.Struct, tag=True, frozen=True):
    """The child ends, and why: where / got / want / fix, and the exit code that it means."""

    facts: dict[str, str]
    code: int


class Scrape(codec.Struct, tag=True, frozen=True):
    """API process ``asker`` wants the metrics of all others; it is passed on to each of them."""

    asker: int
    id: int


class Scraped(codec.Struct, tag=True, frozen=True):
    """One answer to ``Scrape``; it is passed on to ``asker``. Empty from a process that is gone."""

    asker: int
    id: int
    text: str


Message = (
    Start
    | Connect
    | State
    | StartedUp
    | Drain
    | Stop
    | Phase
    | Ready
    | Beat
    | Drained
    | Failed
    | Scrape
    | Scraped
)
