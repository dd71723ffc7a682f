"""``mstar-core bench host CONFIG``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.tables import columns, print_json

if TYPE_CHECKING:
    from mstar_core.bench.host import HostTimes


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("bench", help="measure")
    parser.add_argument("what", choices=("host",), help="host: the host's time of a decode step")
    add_config_arguments(parser)
    parser.add_argument(
        "--rows", type=_counts, default="8,64", metavar="N,N", help="rows of a step; default 8,64"
    )
    parser.add_argument(
        "--steps", type=_count, default=500, metavar="N", help="decode steps; default 500"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, with the machine, the commit and the command beside the numbers.

    host: decode steps of random lengths through the real engine, resident and planned on the
    host, with a counter in place of each kernel launch. Microseconds; medians over the steps.

    Exit code: 0 measured, 1 something is wrong, 2 the command line is wrong.

    Example:  mstar-core bench host tiny.yaml --rows 8,16,32,64,128
    """
    from attrs import asdict

    from mstar_core.bench.host import measure
    from mstar_core.bench.machine import described

    found = []
    for rows in args.rows:
        for resident in ("auto", "off"):
            sets = [
                *args.sets,
                f"engine.max_rows={rows}",
                f"engine.capture.rows=[{rows}]",
                "engine.capture.tokens=[]",
                f"engine.resident={resident}",
            ]
            args_now = argparse.Namespace(**{**vars(args), "sets": sets})
            resolved, _ = resolve_arguments(args_now)
            found.append(measure(resolved, rows, args.steps, (1, 256)))
    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    if args.json:
        print_json({**machine, "results": [asdict(one) for one in found]})
        return 0
    _print_table(machine, found)
    return 0


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


def _count(text: str) -> int:
    if not text.isascii() or not text.strip().isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def _print_table(machine: dict[str, str], found: Sequence[HostTimes]) -> None:
    print("\n".join(f"{key:<11}{value}" for key, value in machine.items()))
    heading = ("rows", "resident", "plan+launch us", "p99", "deliver us", "untouched", "crossing")
    table = [
        (
            str(one.rows),
            one.resident,
            f"{one.plan_and_launch_us:.1f}",
            f"{one.plan_and_launch_p99_us:.1f}",
            f"{one.deliver_us:.1f}",
            f"{one.share['untouched']:.0%}",
            f"{one.share['crossing']:.0%}",
        )
        for one in found
    ]
    print(columns([heading, *table]))
    for one in found:
        parts = ", ".join(f"{name} {us:.1f}" for name, us in one.phases_us.items())
        print(f"{one.rows} rows, resident {one.resident}: {parts}")
