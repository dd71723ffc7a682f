"""The schedule fuzzer: arrivals, chunks, stops, aborts and offloads against an exact oracle.

::

    python -m mstar_core.testing.fuzz --seeds 0:2000

Seeds are played in lives of :data:`LIFE`: one engine each, so that later schedules find dirty
pages, slots and rows. A failing seed prints the shortest schedule that the shrinker found, and is
played again by the same command with ``--seeds SEED:SEED+1``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from attrs import define

from mstar_core.engine.core import EngineCore
from mstar_core.testing.cores import open_ledger
from mstar_core.testing.families import ledger_oracle, ledger_prompt
from mstar_core.testing.playing import MakeRequest, OpenCore, Oracle, Subject, play, poison
from mstar_core.testing.schedules import Limits, Planned, Schedule, Setup, draw_schedule, draw_setup

LIFE = 8
"""Schedules that are played on one engine."""


@define(eq=False)
class FuzzFailure(AssertionError):
    """A schedule went wrong."""

    schedule: Schedule
    complaints: list[str]
    before: Sequence[Schedule] = ()
    """Schedules that the engine has to have played first."""

    def __str__(self) -> str:
        lines = [f"seed {self.schedule.seed}:", *self.complaints, str(self.schedule.setup)]
        lines += [f"first {schedule.requests}" for schedule in self.before]
        return "\n  ".join([*lines, *map(str, self.schedule.requests)])


def play_life(schedules: Sequence[Schedule], subject: Subject) -> FuzzFailure | None:
    """Play schedules of one setup on a fresh engine, up to the first that goes wrong."""
    core = subject.open_core(schedules[0].setup)
    poison(core)
    for i, schedule in enumerate(schedules):
        try:
            wrong = play(core, schedule, subject)
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            return FuzzFailure(schedule, wrong, schedules[:i])
    return None


def shrink(failure: FuzzFailure, subject: Subject, tries: int = 300) -> FuzzFailure:
    """The same failure with fewer schedules before it, fewer requests, and less done to them."""
    tries_left = iter(range(tries))
    while True:
        for smaller in _smaller(failure):
            if next(tries_left, None) is None:
                return failure
            found = play_life(smaller, subject)
            if found is not None:
                failure = found
                break
        else:
            return failure


def _smaller(failure: FuzzFailure) -> Iterator[list[Schedule]]:
    """Lives a little simpler than the failing one, the boldest first."""
    life = [*failure.before, failure.schedule]
    if failure.before:
        yield life[-1:]
        yield from (life[:i] + life[i + 1 :] for i in range(len(life) - 1))
    for at, schedule in enumerate(life):
        for requests in _simpler(schedule.requests):
            simpler = attrs.evolve(schedule, requests=requests)
            yield [*life[:at], simpler, *life[at + 1 :]]


def _simpler(requests: tuple[Planned, ...]) -> Iterator[tuple[Planned, ...]]:
    if len(requests) > 1:
        yield requests[: len(requests) // 2]
        yield requests[len(requests) // 2 :]
        yield from (requests[:i] + requests[i + 1 :] for i in range(len(requests)))
    for i, planned in enumerate(requests):
        for changes in (
            {
                "abort_after": None,
                "stop_after": None,
                "stop_token": None,
                "gated": False,
                "trips": (),
            },
            {"abort_after": None},
            {"trips": planned.trips[:-1]},
            {"like": None, "shared": 0},
            {"stop_after": None},
            {"stop_token": None},
            {"gated": False},
            {"turn": 0},
            {"prompt": planned.prompt // 2 or 1},
            {"new": planned.new // 2 or 1, "stop_token": None},
        ):
            simpler = attrs.evolve(planned, **changes)
            if simpler != planned:
                yield (*requests[:i], simpler, *requests[i + 1 :])


def fuzz_model(
    open_core: OpenCore,
    make_request: MakeRequest,
    oracle: Oracle,
    seeds: Sequence[int],
    limits: Limits | None = None,
) -> int:
    """Play every seed over any model of greedy requests; the number of schedules played.

    Raises FuzzFailure, shrunk. A seed plays the seeds of its life that come before it, too.
    """
    subject, bounds = Subject(open_core, make_request, oracle), limits or Limits()
    wanted, played = sorted(set(seeds)), 0
    for life in sorted({seed // LIFE for seed in wanted}):
        last = max(seed for seed in wanted if seed // LIFE == life)
        setup = draw_setup(life, bounds)
        schedules = [draw_schedule(s, setup, bounds) for s in range(life * LIFE, last + 1)]
        failure = play_life(schedules, subject)
        if failure is not None:
            raise shrink(failure, subject)
        played += len(schedules)
    return played


def ledger_sets(setup: Setup) -> tuple[str, ...]:
    """``--set`` texts of a ledger engine."""
    return setup.sets("nodes.ledger.resources.kv", state="nodes.ledger.resources.state")


def fuzz_ledger(seeds: Sequence[int], folder: Path, device: str = "cpu") -> int:
    """:func:`fuzz_model` over the ledger model. ``folder`` is scratch.

    On ``cuda`` the graphs are CUDA graphs, and the device lags by itself.
    """

    def open_core(setup: Setup) -> EngineCore:
        if device != "cpu":
            graphs = "off" if setup.graphs == "off" else "cuda"
            setup = attrs.evolve(setup, graphs=graphs, lag=None)
        return open_ledger(folder, ledger_sets(setup), setup.lag, device)[0]

    return fuzz_model(open_core, ledger_prompt, ledger_oracle, seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a range of seeds; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m mstar_core.testing.fuzz")
    parser.add_argument("--seeds", default="0:2000", help="FIRST:END")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    given = parser.parse_args(arguments)
    first, _, end = given.seeds.partition(":")
    seeds, begin = range(int(first), int(end)), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            played = fuzz_ledger(seeds, Path(folder), given.device)
        except FuzzFailure as failure:
            sys.stdout.write(f"{failure}\n")
            return 1
    seconds = time.perf_counter() - begin
    sys.stdout.write(f"{played} schedules right, seeds {first}:{end}, {seconds:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
