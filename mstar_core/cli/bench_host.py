"""``mstar-core bench host CONFIG`` and ``mstar-core bench sched``: the host's own time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mstar_core.cli.arguments import count, counts, row_counts
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.tables import columns, print_json

if TYPE_CHECKING:
    from mstar_core.bench.host import HostTimes
    from mstar_core.bench.sched import SchedTimes


def add_host(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``host``."""
    add_config_arguments(parser)
    _add_steps(parser)
    parser.add_argument(
        "--rows",
        type=row_counts,
        default="8,64",
        metavar="N,N",
        help="rows of a step; default 8,64",
    )


def add_sched(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sched``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_steps(parser)
    parser.add_argument(
        "--rows", type=row_counts, default="256", metavar="N,N", help="rows of a step; default 256"
    )
    parser.add_argument(
        "--waiting",
        type=counts,
        default="1000,10000",
        metavar="N,N",
        help="requests that wait; default 1000,10000",
    )


def host(args: argparse.Namespace) -> int:
    """Decode steps of random lengths through the real engine, resident and planned on the host.

    A counter stands in for each kernel launch. Microseconds; medians over the steps.

    Example:  mstar-core bench host tiny.yaml --rows 8,16,32,64,128
    """
    return _print(args, _host(args), _print_host)


def sched(args: argparse.Namespace) -> int:
    """The choice of steps, admission and counts alone, over a null model. Microseconds.

    Example:  mstar-core bench sched --rows 256 --waiting 1000
    """
    return _print(args, _sched(args), _print_sched)


def _add_steps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=count, default=500, metavar="N", help="default 500")


def _print(args: argparse.Namespace, found: list[Any], table: Any) -> int:
    from attrs import asdict

    from mstar_core.bench.machine import described

    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    if args.json:
        print_json({**machine, "results": [asdict(one) for one in found]})
        return 0
    print("\n".join(f"{key:<11}{value}" for key, value in machine.items()))
    table(found)
    return 0


def _sched(args: argparse.Namespace) -> list[Any]:
    from mstar_core.bench.sched import measure

    each = [(running, waiting) for running in args.rows for waiting in args.waiting]
    return [measure(running, waiting, args.steps) for running, waiting in each]


def _host(args: argparse.Namespace) -> list[Any]:
    from mstar_core.bench.host import measure

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
