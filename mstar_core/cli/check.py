"""``mstar-core check CONFIG``."""

from __future__ import annotations

import argparse
from typing import Any

from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.tables import print_json


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("check", help="validate and wire, without weights")
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Validate and wire CONFIG: plugins, graph, resources, backends, buckets, memory.

    Everything is decided as at a start, on a device without memory: no weights are loaded and
    nothing is allocated. Names and shapes of the checkpoint's tensors are checked.

    Exit code: 0 it can be served, 1 something is wrong, 2 the command line is wrong.

    Example:  mstar-core check model.yaml --set engine.max_rows=64
    """
    resolved, _ = resolve_arguments(args)
    from mstar_core.engine.dry_run import dry_run

    report = dry_run(resolved, offline=args.offline)
    if args.json:
        print_json(report.as_dict())
    else:
        print("\n".join([*report.lines(), "ok        this configuration can be served"]))
    return 0
