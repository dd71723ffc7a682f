"""The arguments that every verb with a CONFIG shares."""

from __future__ import annotations

import argparse


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG, ``--set`` (repeatable), ``--json`` and ``--offline``.

    They arrive as ``args.config``, ``args.sets``, ``args.json`` and ``args.offline``.
    """
    parser.add_argument(
        "config", metavar="CONFIG", help="a YAML file, or the name of a config a plugin ships"
    )
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one value, such as engine.max_rows=8; may be given again",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--offline", action="store_true", help="never ask the hub; use folders and its cache"
    )
