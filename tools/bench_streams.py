"""What one API process streams: events and tokens a second, and whose processor that takes.

    python tools/bench_streams.py --rounds 5 --json run.json

Each round starts nothing anew: the same `mstar-core serve echo` of one API process has the load of
`mstar-core bench serve` put on it, completions that go on to their limit. The loads:

    chunks    8 at a time: the engine's steps are short, so nearly every token is its own event
    tokens    64 at a time: what has arrived is sent together

With `--paced`, instead: 200 streams of one event each 40 ms, since one request more delays every
step by that time; how evenly they come.

Printed per load: medians over the rounds with least and greatest, and the processor time of the
server's processes by the time that passed, and by the event.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import socket
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_overhead import our_server, request

from mstar_core.bench.machine import described
from mstar_core.bench.prompts import Asks
from mstar_core.bench.serve import Run, measure

TICKS = os.sysconf("SC_CLK_TCK")
LOADS = {"chunks": 8, "tokens": 64}
"""Requests at a time."""
STREAMS, STEP_S = 200, 0.04
PACED = ("model.options.faults=true", "engine.max_rows=256", "limits.request_timeout_s=3600")
SHOWN = ("events_per_s", "tokens_per_s", "tokens_per_chunk", "itl_median_ms", "itl_p99_ms")
Rounds = dict[str, list[dict[str, float]]]
SHARES = ("engine", "api", "client")


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def pacemaker(port: int) -> Iterator[None]:
    """One request that delays every step of the engine, as long as it is open."""
    fields = {"prompt": f"!delay={STEP_S} x", "max_tokens": 60_000, "ignore_eos": True}
    with socket.create_connection(("127.0.0.1", port)) as opened:
        opened.sendall(request("/v1/completions", fields))
        yield


def one(
    port: int, pids: dict[str, int], concurrency: int, requests: int, tokens: int = 512
) -> dict[str, float]:
    """One round of one load."""
    asks = Asks(route="completions", model="echo", words=8, output_tokens=tokens, ignore_eos=True)
    url = f"http://127.0.0.1:{port}"
    before = {role: cpu_s(pid) for role, pid in pids.items()}
    run = Run(url=url, asks=asks, requests=requests, concurrency=concurrency, warmup=0)
    found = measure(run)
    if found.failed:
        raise SystemExit(f"failed: {found.errors}")
    took_s = {role: cpu_s(pid) - before[role] for role, pid in pids.items()}
    events = found.events_per_s * found.duration_s
    return {
        "events_per_s": found.events_per_s,
        "tokens_per_s": found.output_tokens_per_s,
        "tokens_per_chunk": found.tokens_per_chunk,
        "itl_median_ms": found.itl_ms.median,
        "itl_p99_ms": found.itl_ms.p99,
        "client": found.client_busy,
        "api_us_per_event": took_s["api"] / events * 1e6,
        **{role: seconds / found.duration_s for role, seconds in took_s.items()},
    }


def unpaced(port: int, pids: dict[str, int], args: argparse.Namespace) -> Rounds:
    """The two loads in turns."""
    each: Rounds = {name: [] for name in LOADS}
    for concurrency in LOADS.values():
        one(port, pids, concurrency, 100)
    for _ in range(args.rounds):
        for name, concurrency in LOADS.items():
            each[name].append(one(port, pids, concurrency, args.requests))
    return each


def paced(port: int, pids: dict[str, int], args: argparse.Namespace) -> Rounds:
    """Streams at one pace, all at once."""
    with pacemaker(port):
        rounds = [one(port, pids, STREAMS, STREAMS, tokens=250) for _ in range(args.rounds)]
    return {"paced": rounds}


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400, help="of each load and round")
    parser.add_argument("--paced", action="store_true", help="200 streams of 25 events a second")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    loads = [os.getloadavg()[0]]
    with our_server(*(PACED if args.paced else ())) as (port, log):
        pids = {"engine": _pid(log, "engine"), "api": _pid(log, "API process 0")}
        each = paced(port, pids, args) if args.paced else unpaced(port, pids, args)
    loads.append(os.getloadavg()[0])
    machine = described(shlex.join(["python", *sys.argv]))
    for name, value in machine.items():
        print(f"{name:11}{value}")
    print("load       {:.1f} to {:.1f}\n".format(*loads))
    for name, rounds in each.items():
        for figure in (*SHOWN, "api_us_per_event", *SHARES):
            values = [values[figure] for values in rounds]
            three = (statistics.median(values), min(values), max(values))
            print("{:7}  {:18}{:11.2f}  ({:.2f} to {:.2f})".format(name, figure, *three))
    if args.json:
        record = {"machine": machine, "load": loads, "rounds": each}
        Path(args.json).write_text(json.dumps(record, indent=1))


def _pid(log: Path, role: str) -> int:
    return int(re.search(rf"{role} is process (\d+)", log.read_text())[1])


if __name__ == "__main__":
    main()
