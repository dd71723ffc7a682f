"""Cores for tests: an engine without a thread, over any model, driven turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mstar_core.config.resolve import resolve
from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Lag, open_device
from mstar_core.engine.events import EngineEvent, FinishEvent, Result
from mstar_core.engine.opening import open_graphs
from mstar_core.engine.report import WarmupReport
from mstar_core.engine.warmup import warm_up
from mstar_core.engine.wire import Wired, wire
from mstar_core.model.front import Request
from mstar_core.plugins.registry import BackendRegistry
from mstar_core.plugins.wiring import Wiring

LEDGER = "mstar_core.testing.ledger:LedgerModel"


def open_model(
    ref: str, folder: Path, sets: Sequence[str] = (), lag: Lag | None = None, device: str = "cpu"
) -> tuple[EngineCore, WarmupReport]:
    """A warmed core over the model class at ``ref`` (``module:Class``), with random weights.

    ``folder`` receives an empty ``config.json`` and the configuration; ``sets`` are ``key=value``
    texts as ``--set`` takes them. No plugin is loaded.
    """
    core, _, report = open_wired(ref, folder, sets, lag, device)
    return core, report


def open_wired(
    ref: str,
    folder: Path,
    sets: Sequence[str] = (),
    lag: Lag | None = None,
    device: str = "cpu",
    checkpoint: Path | None = None,
    backends: Callable[[BackendRegistry], None] | None = None,
) -> tuple[EngineCore, Wired, WarmupReport]:
    """Like :func:`open_model`, with what the core was built from; or over a real checkpoint.

    ``backends`` adds what the model needs beside the core's own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file, where_from = folder / "engine.yaml", f"path: {checkpoint}"
    if checkpoint is None:
        (folder / "config.json").write_text("{}")
        where_from = f"path: {folder}, load: random"
    file.write_text(f"model: {{name: tested, {where_from}}}\ndevice: {device}\n")
    wiring = Wiring.of_core()
    wiring.models.add("tested", ref)
    if backends is not None:
        backends(wiring.backends)
    where = open_device(device, lag)
    wired = wire(resolve(file, sets), wiring, where.torch_device, target=device)
    graphs = open_graphs(wired.resolved.config.engine.graphs, where, wired)
    core, report = warm_up(wired, where, graphs, lambda phase, done, total: None)
    return core, wired, report


def open_ledger(
    folder: Path, sets: Sequence[str] = (), lag: Lag | None = None, device: str = "cpu"
) -> tuple[EngineCore, WarmupReport]:
    """A warmed core over the ledger model."""
    return open_model(LEDGER, folder, sets, lag, device)


def run_all(core: EngineCore, requests: Iterable[Request]) -> dict[str, Result]:
    """Submit all, take turns until the core is idle, and check that everything came back."""
    given = list(requests)
    for request in given:
        core.submit(request)
    while core.turn():
        pass
    core.check_conserved()
    return results(core)


def check_over(core: EngineCore) -> None:
    """Fail unless nothing runs, everything came back, and resident rows were what they should."""
    assert core.idle
    core.check_conserved()
    core.check_rows()
    assert core.fences.num_cooling == 0
    assert core.table.num_free == core.table.num_handles


def results(core: EngineCore) -> dict[str, Result]:
    """What the events so far come to, of each request that has ended."""
    own: dict[str, list[EngineEvent]] = {}
    for event in core.drain():
        own.setdefault(event.request, []).append(event)
    over = {name: events for name, events in own.items() if isinstance(events[-1], FinishEvent)}
    return {name: Result.of(name, events) for name, events in over.items()}


def arriving(core: EngineCore, requests: Iterable[Request], every: int = 3) -> dict[str, Result]:
    """The results of requests that come one by one, ``every`` turns, while the others decode."""
    waiting, turns = list(requests), 0
    while core.turn() or waiting:
        if waiting and turns % every == 0:
            core.submit(waiting.pop(0))
        turns += 1
    core.check_conserved()
    core.check_rows()
    return results(core)
