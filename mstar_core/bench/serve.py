"""Load on a server from several processes: start them together, gather what they saw."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
from attrs import frozen

from mstar_core.bench.load import Part, rows
from mstar_core.bench.prompts import Asks
from mstar_core.bench.stats import Figures, Spread, alternated, figures, spread
from mstar_core.client import Client, Completion
from mstar_core.errors import MstarError, Words

HEAD_START_S = 0.1
"""Between the word to begin and the first request: longer than it takes to reach every process."""
FEW, MANY = 16, 80
"""Words of the two requests that tell how many tokens a word is."""


@frozen(kw_only=True)
class Run:
    """A load as a person asks for it."""

    url: str
    asks: Asks
    requests: int
    concurrency: int
    rate: float | None = None
    processes: int = 1
    warmup: int = 0
    api_key: str | None = None
    promises: Mapping[str, float] | None = None
    read_s: float = 600.0

    def parts(self) -> list[Part]:
        """Each process's share; no process is left without one."""
        most = self.concurrency if self.rate is None else self.requests
        parts = min(self.processes, self.requests, most)
        return [
            Part(
                url=self.url,
                api_key=self.api_key,
                asks=self.asks,
                requests=self.requests,
                concurrency=max(len(range(part, self.concurrency, parts)), 1),
                rate=self.rate,
                warmup=len(range(part, self.warmup, parts)),
                part=part,
                parts=parts,
                read_s=self.read_s,
            )
            for part in range(parts)
        ]


def measure(run: Run) -> Figures:
    """Put the load on, and what it came to. Raises MstarError where a process of it ends."""
    said = _said(run)
    found = figures([s for one in said for s in rows(one["samples"])], run.promises)
    busiest_s: float = max(one["cpu_s"] for one in said)
    return attrs.evolve(found, client_busy=busiest_s / max(found.duration_s, 1e-9))


def compare(first: Run, second: Run, rounds: int) -> tuple[list[Figures], list[Figures]]:
    """Each of two loads ``rounds`` times, in the order ABBA."""
    arms: dict[str, list[Figures]] = {"A": [], "B": []}
    for arm in alternated(rounds):
        arms[arm].append(measure(first if arm == "A" else second))
    return arms["A"], arms["B"]


def spreads(found: Sequence[Figures]) -> dict[str, Spread]:
    """Every figure of several rounds by name; of a distribution its median and 99th percentile."""
    each = [_flat(one) for one in found]
    names = [name for name in each[0] if all(name in other for other in each)]
    return {name: spread([other[name] for other in each]) for name in names}


def prompt_words(client: Client, asks: Asks, tokens: int) -> int:
    """How many random words make a prompt of about ``tokens``, as the server counts them.

    Two requests tell what a word and what the frame around them is; the run's own mean is in its
    figures. Raises ClientError.
    """
    few, many = (_counted(client, attrs.evolve(asks, words=words)) for words in (FEW, MANY))
    each = max((many - few) / (MANY - FEW), 1e-6)
    return max(round((tokens - few) / each) + FEW, 1)


def _counted(client: Client, asks: Asks) -> int:
    options = {"model": asks.model, "max_tokens": 1, "temperature": 0}
    said: Completion
    if asks.route == "chat":
        turn = {"role": "user", "content": asks.text(-1)}
        said = client.chat([turn], **options)
    else:
        said = client.complete(asks.text(-1), **options)
    return said.usage.prompt_tokens or asks.words


def _said(run: Run) -> list[dict[str, Any]]:
    """What each process of the load has to say in the end."""
    with ExitStack() as stack:
        started = [stack.enter_context(_Process(part)) for part in run.parts()]
        for process in started:
            process.line()  # ready
        begin_s = time.monotonic() + HEAD_START_S
        for process in started:
            process.tell(f"{begin_s!r}")
        return [json.loads(process.line()) for process in started]


class _Process:
    """One process of the load, and the lines it says."""

    def __init__(self, part: Part) -> None:
        command = [sys.executable, "-m", "mstar_core.bench.load"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.tell(part.to_json())

    def tell(self, line: str) -> None:
        """Write a line to it."""
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(f"{line}\n")
                stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def line(self) -> str:
        """The next line from it."""
        said = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not said:
            raise self._ended()
        return said

    def _ended(self) -> MstarError:
        return MstarError(
            where="a process of the load",
            got=Words("an end before its work was done"),
            want="samples",
            fix="its error is on stderr",
        )

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self._process.kill()
        self._process.communicate()


def _flat(found: Figures) -> dict[str, float]:
    """Every number of the figures by name."""
    flat: dict[str, float] = {}
    for name, value in attrs.asdict(found).items():
        if isinstance(value, dict):
            flat.update(_distribution(name, value))
        elif isinstance(value, int | float):
            flat[name] = value
    return flat


def _distribution(name: str, value: Mapping[str, Any]) -> dict[str, float]:
    return {f"{name} {part}": value[part] for part in ("median", "p99") if part in value}
