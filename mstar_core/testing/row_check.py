"""Loads that make rows come and go, with every resident step checked against the host.

::

    python -m mstar_core.testing.row_check --rows 30000
    python -m mstar_core.testing.row_check --rows 30000 --load slots

Each load keeps requests of the ledger model coming until enough rows were checked; every token is
compared with the definition besides, and everything must be back in the end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import define, field

from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Lag
from mstar_core.engine.events import FinishEvent, TokenEvent
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_ledger
from mstar_core.testing.ledger import VOCAB, continuation, ledger_request
from mstar_core.testing.loads import LOADS, PAGES, Load, Report

Asked = tuple[Request, list[int]]
"""A request, and every token that should come of it."""


@define(eq=False, kw_only=True)
class Player:
    """A load on a core, turn by turn."""

    load: Load
    core: EngineCore
    ask: Callable[[random.Random, int], Asked]
    """The ``number``-th request, and its tokens."""
    seed: int = 0
    num_asked: int = field(default=0, init=False)
    num_refused: int = field(default=0, init=False)
    _right: dict[str, list[int]] = field(factory=dict, init=False)
    _tokens: dict[str, list[int]] = field(factory=dict, init=False)
    _away: dict[str, int] = field(factory=dict, init=False)
    _known: dict[str, int] = field(factory=dict, init=False)
    """Tokens that say nothing of a row: the prompt's own, and those from before a reload."""
    _turn: int = field(default=0, init=False)

    def play(self, rows: int) -> Report:
        """Until ``rows`` were checked; then to the end. Raises RuntimeError for anything wrong."""
        begin, rng, core = time.perf_counter(), random.Random(self.seed), self.core
        check = core.lifecycle.check
        if check is None:
            raise RuntimeError("the core was opened without debug.row_check")
        while check.counts.rows < rows:
            self._arrive(rng)
            self._befall(rng)
            self._take_turn()
        for name in self._away:
            core.reload(name)
        while not core.idle:
            self._take_turn()
        core.check_conserved()
        core.check_rows()
        return self._report(time.perf_counter() - begin)

    def _arrive(self, rng: random.Random) -> None:
        arriving = min(self.load.arrivals, self.load.live - len(self._right))
        for _ in range(arriving):
            self.num_asked += 1
            request, right = self.ask(rng, self.num_asked)
            self.core.submit(request)
            self._right[request.id], self._tokens[request.id] = right, []
            self._known[request.id] = 1

    def _befall(self, rng: random.Random) -> None:
        if self._right and rng.random() < self.load.abort:
            self.core.abort(rng.choice(list(self._right)))
        here = [name for name in self._right if name not in self._away]
        if here and rng.random() < self.load.offload:
            name = rng.choice(here)
            if not self.load.decoding or self.core.num_generated(name) > self._known[name]:
                self.core.offload(name)
                self._away[name] = self._turn + rng.randint(1, self.load.rest)
        for name in [n for n, until in self._away.items() if until <= self._turn]:
            self.core.reload(name)
            self._known[name] = self.core.num_generated(name)
            del self._away[name]

    def _take_turn(self) -> None:
        self._turn += 1
        self.core.turn()
        self.num_refused += len(self.core.line) > 0
        for event in self.core.drain():
            name = event.request
            if isinstance(event, TokenEvent):
                self._tokens[name].append(event.token)
            if not isinstance(event, FinishEvent):
                continue
            self._away.pop(name, None)
            kept, right = self._tokens.pop(name), self._right.pop(name)
            if kept != right[: len(kept)] or (event.reason == "length" and kept != right):
                raise RuntimeError(f"{name} ({event.reason}): {kept}, want {right}")
            if event.error is not None:
                raise RuntimeError(f"{name}: {event.error}")

    def _report(self, seconds: float) -> Report:
        stats = self.core.stats()
        tables = [n.planner.counts for n in self.core.nodes.values() if n.planner is not None]
        return Report(
            load=self.load.name,
            **{name: stats["row_check"][name] for name in ("rows", "steps", "mismatches")},
            displaced=sum(t.displaced for t in tables),
            whole_rows=sum(t.whole_rows for t in tables),
            offloads=stats["offload"]["offloads"],
            releases=stats["offload"]["rows_given_up"],
            requests=self.num_asked,
            refused=self.num_refused,
            seconds=seconds,
        )


def open_load(load: Load, folder: Path, device: str) -> EngineCore:
    """The ledger model as ``load`` wants it, with the row check on; a CPU lags."""
    on_cpu = device == "cpu"
    sets = (
        "engine.max_rows=8",
        "engine.token_budget=64",
        "engine.in_flight=2",
        f"engine.graphs={'recorder' if on_cpu else 'cuda'}",
        "engine.capture.tokens=[16]",
        "debug.row_check=true",
        f"{PAGES}.page_tokens=8",
    )
    return open_ledger(folder, (*sets, *load.sets), Lag(7) if on_cpu else None, device)[0]


def ledger_player(load: Load, folder: Path, device: str = "cpu") -> Player:
    """``load`` over the ledger model."""

    def ask(rng: random.Random, number: int) -> Asked:
        ids = [rng.randrange(VOCAB) for _ in range(rng.randint(*load.prompt))]
        new = rng.randint(*load.new)
        request = ledger_request(ids, number, new, id=f"r{number}", gated=load.gated)
        return request, continuation(ids, number, new)

    return Player(load=load, core=open_load(load, folder, device), ask=ask)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the loads one after the other; 1 where a cell differs."""
    parser = argparse.ArgumentParser(prog="python -m mstar_core.testing.row_check")
    parser.add_argument("--rows", type=int, default=30000, help="rows to check in each load")
    parser.add_argument("--load", choices=[load.name for load in LOADS], help="this load alone")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    given = parser.parse_args(arguments)
    for load in LOADS:
        if given.load not in (None, load.name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                report = ledger_player(load, Path(folder), given.device).play(given.rows)
            except RuntimeError as error:
                sys.stdout.write(f"{load.name}: {error}\n")
                return 1
        sys.stdout.write(f"{report}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
