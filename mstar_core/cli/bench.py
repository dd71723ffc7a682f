"""``mstar-core bench WHAT``: what there is to measure, each in a module of its own."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from attrs import frozen

from mstar_core.cli import (
    bench_host,
    bench_offline,
    bench_ops,
    bench_quality,
    bench_roofline,
    bench_serve,
    bench_startup,
)
from mstar_core.cli.parser import add_logging


@frozen
class Measurement:
    """One thing to measure: its line in the help, its arguments, and what it does."""

    line: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


WHAT = {
    "serve": Measurement("load on a server, any OpenAI URL", bench_serve.add, bench_serve.run),
    "offline": Measurement("the engine in process", bench_offline.add, bench_offline.run),
    "quality": Measurement("right answers, by task", bench_quality.add, bench_quality.run),
    "startup": Measurement("a server's start", bench_startup.add, bench_startup.run),
    "ops": Measurement("each operation by each backend", bench_ops.add, bench_ops.run),
    "roofline": Measurement("a step beside its floor", bench_roofline.add, bench_roofline.run),
    "host": Measurement("the host's part of a step", bench_host.add_host, bench_host.host),
    "sched": Measurement("the scheduler alone", bench_host.add_sched, bench_host.sched),
}


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments: those of each measurement behind its name."""
    parser = subparsers.add_parser("bench", help="measure")
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", title="what", required=True)
    for name, one in WHAT.items():
        below = kinds.add_parser(
            name,
            help=one.line,
            description=inspect.getdoc(one.run),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        one.add(below)
        add_logging(below, top=False)


def run(args: argparse.Namespace) -> int:
    """Measure, with the machine, the commit and the command beside the numbers.

    Exit code: 0 measured, 1 something is wrong, 2 the command line is wrong.

    Example:  mstar-core bench serve --url http://127.0.0.1:8000 --requests 200 --concurrency 16
    """
    return WHAT[args.what].run(args)
