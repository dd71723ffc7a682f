"""One process of a load generator: ``python -m mstar_core.bench.load``, told what to do by JSON.

It reads one line (a :class:`Part`), warms up, says ``ready``, reads the moment at which to begin,
and writes its samples as one line, with the processor time that it took. The clock is the
machine's monotonic one, which all processes share.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from attrs import asdict, define, field, frozen

from mstar_core.bench.answers import Answer
from mstar_core.bench.prompts import Asks, arrivals
from mstar_core.bench.stats import Sample
from mstar_core.bench.wire import Wire
from mstar_core.client.settings import Settings


@frozen(kw_only=True)
class Part:
    """What one of ``parts`` processes does of a run."""

    url: str
    api_key: str | None = None
    asks: Asks
    requests: int
    """Of the whole run; this process sends every ``parts``-th of them."""
    concurrency: int
    """Closed loop: how many requests this process has open at any time."""
    rate: float | None = None
    """Open loop: requests per second of the whole run, whatever became of those before."""
    warmup: int = 0
    """Requests of this process before those that count."""
    part: int = 0
    parts: int = 1
    read_s: float = 600.0
    """Seconds that one request may take."""

    @classmethod
    def of_json(cls, text: str) -> Part:
        """What :meth:`to_json` wrote."""
        told = json.loads(text)
        return cls(**{**told, "asks": Asks(**told["asks"])})

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    def numbers(self) -> range:
        """The requests that this process sends."""
        return range(self.part, self.requests, self.parts)


@define(eq=False)
class Load:
    """A part while it runs. Requests are built before, so that only sending is timed."""

    part: Part
    settings: Settings = field(init=False)
    samples: list[Sample] = field(factory=list, init=False)
    _idle: list[Wire] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.settings = Settings(base_url=self.part.url, api_key=self.part.api_key)

    async def warm(self) -> None:
        """The requests that do not count, with numbers that the run does not use."""
        first = self.part.requests + self.part.part
        numbers = range(first, first + self.part.warmup * self.part.parts, self.part.parts)
        await self._closed(iter([(n, self._bytes(n)) for n in numbers]))
        self.samples.clear()

    def built(self) -> list[tuple[int, bytes]]:
        """Every request of the run by number."""
        return [(number, self._bytes(number)) for number in self.part.numbers()]

    async def run(self, requests: list[tuple[int, bytes]], begin_s: float) -> list[Sample]:
        """Send them from ``begin_s`` on, and wait for the last answer."""
        await asyncio.sleep(max(begin_s - time.monotonic(), 0))
        if self.part.rate is None:
            await self._closed(iter(requests))
        else:
            due = arrivals(self.part.requests, self.part.rate, self.part.asks.seed)
            await self._open(requests, [begin_s + after for after in due])
        for wire in self._idle:
            wire.close()
        return self.samples

    async def _closed(self, requests: Iterator[tuple[int, bytes]]) -> None:
        """So many at a time; the next one is sent when one has its answer."""

        async def one_after_another() -> None:
            for number, request in requests:
                await self._send(number, request, time.monotonic())

        await asyncio.gather(*(one_after_another() for _ in range(self.part.concurrency)))

    async def _open(self, requests: list[tuple[int, bytes]], due: list[float]) -> None:
        """Each when it is due. One that cannot be sent in time is late, not left out."""
        tasks = []
        for number, request in requests:
            await asyncio.sleep(due[number] - time.monotonic())
            tasks.append(asyncio.create_task(self._send(number, request, due[number])))
        await asyncio.gather(*tasks)

    async def _send(self, number: int, request: bytes, due_s: float) -> None:
        asks = self.part.asks
        answer = Answer(asks.route, asks.sound_s(number), due_s, time.monotonic())
        failed: Exception | None = None
        try:
            wire = await self._wire()
            await wire.exchange(request, answer, self.part.read_s)
            if wire.usable:
                self._idle.append(wire)
        except Exception as error:
            failed = error
        self.samples.append(answer.sample(time.monotonic(), failed))

    async def _wire(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.usable:
                return wire
        return await Wire.open(self.settings)

    def _bytes(self, number: int) -> bytes:
        return self.settings.bytes_of(self.part.asks.request(number))


async def _serve(part: Part) -> dict[str, Any]:
    load = Load(part)
    requests = load.built()
    await load.warm()
    _say("ready")
    begin_s = float(await asyncio.to_thread(sys.stdin.readline))
    gc.collect()
    gc.disable()
    before_s = time.process_time()
    samples = await load.run(requests, begin_s)
    return {"cpu_s": time.process_time() - before_s, "samples": columns(samples)}


def columns(samples: list[Sample]) -> dict[str, list[Any]]:
    """Samples as one list per field; gaps, of which there are many, to the microsecond."""
    names = Sample.__attrs_attrs__
    told: dict[str, list[Any]] = {n.name: [getattr(s, n.name) for s in samples] for n in names}
    told["gaps_s"] = [[round(gap, 6) for gap in gaps] for gaps in told["gaps_s"]]
    return told


def rows(told: dict[str, list[Any]]) -> list[Sample]:
    """The samples of :func:`columns`."""
    return [Sample(**dict(zip(told, row, strict=True))) for row in zip(*told.values(), strict=True)]


def main() -> None:
    """Of the process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection for each open request
    with suppress(KeyboardInterrupt):  # whoever started it says that it ended
        _say(json.dumps(asyncio.run(_serve(Part.of_json(sys.stdin.readline())))))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
