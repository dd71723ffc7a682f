"""``mstar-core bench serve --url URL``: load on a server over HTTP."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mstar_core.cli.arguments import count, count_or_0, positive, promises
from mstar_core.cli.bench_asks import ROUTES, add_asks, run_of

if TYPE_CHECKING:
    from mstar_core.bench.serve import Run


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--url", required=True, help="http://HOST:PORT, with or without /v1")
    parser.add_argument("--compare", metavar="URL", help="a second server, in turns with the first")
    parser.add_argument("--rounds", type=count, default=5, metavar="N", help="of both; default 5")
    parser.add_argument("--route", choices=ROUTES, default="chat", help="default chat")
    parser.add_argument("--model", help="default: the first that the server names")
    parser.add_argument("--requests", type=count, default=100, metavar="N", help="default 100")
    loop = parser.add_mutually_exclusive_group()
    loop.add_argument(
        "--concurrency", type=count, metavar="C", help="closed loop: C at a time; default 8"
    )
    loop.add_argument(
        "--rate", type=positive, metavar="R", help="open loop: R per second on average, Poisson"
    )
    add_asks(parser)
    parser.add_argument("--processes", type=count, default=1, metavar="K", help="of the client")
    parser.add_argument(
        "--warmup", type=count_or_0, default=8, metavar="N", help="requests before; default 8"
    )
    parser.add_argument(
        "--goodput",
        type=promises,
        metavar="ttft:MS,tpot:MS,e2el:MS",
        help="count the requests that keep these",
    )
    parser.add_argument(
        "--seed", type=count_or_0, default=0, metavar="N", help="of prompts and arrivals"
    )
    parser.add_argument("--api-key-file", type=Path, metavar="FILE", help="use the first key in it")
    parser.add_argument("--json", metavar="FILE", help="write JSON there; - is stdout")


def run(args: argparse.Namespace) -> int:
    """Load on a server: latencies as its users see them, and how much it does.

    In a closed loop the next request is sent when one has its answer; in an open loop each is due
    at its own moment, and its times count from there, however late it was sent. docs/bench.md has
    every definition. Exit code 1 if every request of a run failed.

    Example:  mstar-core bench serve --url http://127.0.0.1:8000 --rate 20 --goodput ttft:200
    """
    from attrs import asdict

    from mstar_core.bench import serve
    from mstar_core.bench.machine import described
    from mstar_core.cli.bench_tables import (
        all_failed,
        arms_table,
        check_report,
        figures_table,
        machine_lines,
        write_report,
    )

    if args.json not in (None, "-"):
        check_report("--json", args.json)
    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    runs = [run_of(args, url) for url in (args.url, args.compare) if url is not None]
    servers = [_server(one) for one in runs]
    results: dict[str, Any]
    if len(runs) == 1:
        found = [serve.measure(runs[0])]
        table, results = figures_table(found[0]), {"results": asdict(found[0])}
    else:
        first, second = serve.compare(runs[0], runs[1], args.rounds)
        found = [*first, *second]
        table = arms_table(serve.spreads(first), serve.spreads(second))
        results = {"A": [asdict(one) for one in first], "B": [asdict(one) for one in second]}
    if args.json != "-":
        print(f"{machine_lines(machine)}\n{table}")
    told = {**machine, "servers": servers, "runs": [_settings(one) for one in runs], **results}
    if args.json == "-":
        print(json.dumps(told, indent=2))
    elif args.json is not None:
        write_report("--json", args.json, json.dumps(told, indent=2))
    return int(all_failed(found))


def _server(run: Run) -> dict[str, Any]:
    """What a server says of itself."""
    from mstar_core.client import ApiError, Client

    with Client(run.url, api_key=run.api_key) as client:
        try:
            return {"url": run.url, "models": [model.raw for model in client.models()]}
        except ApiError as error:
            return {"url": run.url, "models": error.message}


def _settings(run: Run) -> dict[str, Any]:
    from attrs import asdict

    return asdict(run, filter=lambda field, _: field.name not in ("api_key", "prompts"))
