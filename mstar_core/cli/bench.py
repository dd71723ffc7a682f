"""``mstar-core bench host CONFIG`` and ``mstar-core bench sched``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mstar_core.cli.arguments import count, counts
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.tables import columns, print_json
from mstar_core.errors import UsageError, Words

if TYPE_CHECKING:
    from mstar_core.bench.host import HostTimes
    from mstar_core.bench.sched import SchedTimes


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("bench", help="measure")
    parser.add_argument(
        "what",
        choices=("host", "sched"),
        help="host: the host's time of a decode step; sched: the scheduler's, without a model",
    )
    add_config_arguments(parser, optional=True)
    parser.add_argument(
        "--rows",
        type=counts,
        metavar="N,N",
        help="rows of a step; default 8,64, for sched 256",
    )
    parser.add_argument(
        "--waiting",
        type=counts,
        default="1000,10000",
        metavar="N,N",
        help="sched: requests that wait; default 1000,10000",
    )
    parser.add_argument("--steps", type=count, default=500, metavar="N", help="default 500")


def run(args: argparse.Namespace) -> int:
    """Measure, with the machine, the commit and the command beside the numbers.

    host: decode steps of random lengths through the real engine, resident and planned on the
    host, with a counter in place of each kernel launch. sched: the choice of steps, admission and
    counts alone, over a null model. Microseconds; medians over the steps.

    Exit code: 0 measured, 1 something is wrong, 2 the command line is wrong.

    Example:  mstar-core bench host tiny.yaml --rows 8,16,32,64,128
    """
    from attrs import asdict

    from mstar_core.bench.machine import described

    found = _host(args) if args.what == "host" else _sched(args)
    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    if args.json:
        print_json({**machine, "results": [asdict(one) for one in found]})
        return 0
    print("\n".join(f"{key:<11}{value}" for key, value in machine.items()))
    (_print_host if args.what == "host" else _print_sched)(found)
    return 0


def _sched(args: argparse.Namespace) -> list[Any]:
    from mstar_core.bench.sched import measure

    rows = args.rows or [256]
    return [measure(running, waiting, args.steps) for running in rows for waiting in args.waiting]


def _host(args: argparse.Namespace) -> list[Any]:
    from mstar_core.bench.host import measure

    if args.config is None:
        raise UsageError(
            where="mstar-core bench host",
            got=Words("no CONFIG"),
            want="a YAML file, or the name of a config a plugin ships",
            fix="mstar-core list-plugins shows the configs that plugins ship",
        )
    found = []
    for rows in args.rows or (8, 64):
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
    return found


def _print_sched(found: Sequence[SchedTimes]) -> None:
    heading = ("running", "waiting", "full step us", "any step us", "p99", "rows of a step")
    table = [
        (
            f"{one.mean_running:.0f}",
            str(one.waiting),
            f"{one.full_step_us:.1f}",
            f"{one.step_us:.1f}",
            f"{one.step_p99_us:.1f}",
            f"{one.mean_rows:.0f}",
        )
        for one in found
    ]
    print(columns([heading, *table]))


def _print_host(found: Sequence[HostTimes]) -> None:
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
