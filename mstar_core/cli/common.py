"""What every verb with a CONFIG shares: its arguments, and what they mean."""

from __future__ import annotations

import argparse

from mstar_core.cli.streams import text_of
from mstar_core.config import Resolved, resolve
from mstar_core.plugins.discover import NameLists, discover
from mstar_core.plugins.record import PluginRecord, shipped_configs


def add_config_arguments(
    parser: argparse.ArgumentParser, *, optional: bool = False, json: bool = True
) -> None:
    """CONFIG, ``--set`` (repeatable), ``--json`` unless False, and ``--offline``.

    They arrive as ``args.config``, ``args.sets``, ``args.json`` and ``args.offline``.
    """
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?" if optional else None,
        help="a YAML file, or the name of a config a plugin ships",
    )
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        type=text_of("--set"),
        metavar="KEY=VALUE",
        help="override one value, such as engine.max_rows=8; may be given again",
    )
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--offline", action="store_true", help="never ask the hub; use folders and its cache"
    )


def resolve_arguments(args: argparse.Namespace) -> tuple[Resolved, tuple[PluginRecord, ...]]:
    """The configuration that a verb's CONFIG and ``--set`` mean, and the plugins it leaves ready.

    Nothing of a plugin is imported. Raises ConfigError or UsageError.
    """
    installed = discover()
    resolved = resolve(args.config, args.sets, lambda: shipped_configs(installed))
    lists = resolved.config.plugins
    if not lists.disable and not lists.allow:
        return resolved, installed
    where = f"plugins of {resolved.file.name}"
    return resolved, discover(NameLists(disable=lists.disable, allow=lists.allow, where=where))
