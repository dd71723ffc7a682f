"""``mstar-core bench startup CONFIG``: how long a server takes to start."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mstar_core.cli.arguments import count, seconds
from mstar_core.cli.common import add_config_arguments
from mstar_core.cli.tables import columns, print_json

if TYPE_CHECKING:
    from mstar_core.bench.startup import StartTimes

TIMES = ("bound_s", "live_s", "ready_s", "first_request_s", "second_request_s")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_config_arguments(parser)
    parser.add_argument("--rounds", type=count, default=3, metavar="N", help="starts; default 3")
    parser.add_argument(
        "--timeout", type=seconds, default=600.0, metavar="S", help="of one start; default 600"
    )


def run(args: argparse.Namespace) -> int:
    """Start ``mstar-core serve CONFIG`` several times: until its port is bound, until it is live,
    until it is ready, and its first two requests; with the phases of its own table.

    Each start is a process of its own; the first one may find files that no cache holds yet.

    Example:  mstar-core bench startup tiny.yaml --rounds 5
    """
    from attrs import asdict

    from mstar_core.bench.machine import described
    from mstar_core.bench.startup import measure
    from mstar_core.cli.bench_tables import machine_lines

    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    sets = [word for given in args.sets for word in ("--set", given)]
    arguments = [args.config, *sets, *(["--offline"] if args.offline else [])]
    found = [measure(arguments, args.timeout) for _ in range(args.rounds)]
    if args.json:
        print_json({**machine, "rounds": [asdict(one) for one in found]})
    else:
        print(f"{machine_lines(machine)}\n{_table(found)}")
    return 0


def _table(found: Sequence[StartTimes]) -> str:
    """One column per start, one row per time and phase, in seconds."""
    rows = [("seconds", *(f"start {number}" for number in range(1, len(found) + 1)))]
    rows += [(name, *(_text(getattr(one, name)) for one in found)) for name in TIMES]
    phases = dict.fromkeys(phase for one in found for phase in one.phases_s)
    rows += [(f"  {p}", *(_text(one.phases_s.get(p)) for one in found)) for p in phases]
    return columns(rows)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
