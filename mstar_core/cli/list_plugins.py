"""``mstar-core list-plugins``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from attrs import asdict

from mstar_core import __version__
from mstar_core.cli.arguments import seconds
from mstar_core.cli.tables import columns, print_json, why
from mstar_core.plugins.builtin import OPERATIONS, RESOURCES
from mstar_core.plugins.compatible import API, MIN_API
from mstar_core.plugins.discover import NameLists, discover
from mstar_core.plugins.record import WRONG, PluginRecord

SCHEMA = 1
"""Of the JSON document; it rises when a key changes its meaning or goes."""


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("list-plugins", help="what is installed")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    parser.add_argument("--probe", action="store_true", help="load each in a process of its own")
    parser.add_argument(
        "--probe-timeout", type=seconds, default=10.0, metavar="SECONDS", help="default 10"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 if anything is broken")
    for flag, text in (("disable", "pretend it is switched off"), ("allow", "only these")):
        parser.add_argument(f"--{flag}", action="append", default=[], metavar="NAME", help=text)


def run(args: argparse.Namespace) -> int:
    """List every installed plugin: what it offers, whether it can be loaded here, and why not.

    Nothing is imported, so a plugin that is broken stays in the list. With --probe each one is
    loaded in a process of its own, which also shows a crash or a hang. NAME is a plugin's name or
    its distribution's.
    """
    lists = NameLists(disable=tuple(args.disable), allow=tuple(args.allow), where="the flags")
    records = discover(lists)
    if args.probe:
        from mstar_core.plugins.probe import probe_all

        records = probe_all(records, args.probe_timeout)
    if args.json:
        print_json(_document(records))
    else:
        print(_table(records))
    return int(args.strict and any(record.state in WRONG for record in records))


def _document(records: Sequence[PluginRecord]) -> dict[str, Any]:
    core = {
        "version": __version__,
        "api": {"min": MIN_API, "max": API},
        "resources": sorted(RESOURCES),
        "operations": sorted(OPERATIONS),
    }
    rows = [record.as_dict() for record in records]
    return {"schema": SCHEMA, "core": core, "plugins": rows}


def _table(records: Sequence[PluginRecord]) -> str:
    core = f"mstar-core {__version__}, hook API {API}: " + ", ".join(
        f"{len(names)} {what}"
        for what, names in (("resources", RESOURCES), ("operations", OPERATIONS))
    )
    if not records:
        return f"{core}\nno plugins are installed: pip install one beside the core"
    heading = ("NAME", "DISTRIBUTION", "ORIGIN", "STATE", "OFFERS")
    rows = [(r.name, r.release, r.origin, r.state, _offers(r)) for r in records]
    lines = columns([heading, *rows]).splitlines()
    out = [core, lines[0]]
    for record, line in zip(records, lines[1:], strict=True):
        out.append(line)
        out += [why(record.refusal)] if record.refusal else []
        out += [_not_run(record)] if record.manifest and record.manifest.not_run_on else []
        out += [f"    note: {note}" for note in record.notes]
        out += [f"    hooks: {', '.join(record.hooks)}"] if record.hooks else []
    return "\n".join(out)


def _not_run(record: PluginRecord) -> str:
    kinds = record.manifest.not_run_on if record.manifest else ()
    return f"    not run on device: {', '.join(kinds)} (tested against fakes of the library)"


def _offers(record: PluginRecord) -> str:
    offers = {**asdict(record.offers), "configs": [file.stem for file in record.configs]}
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in offers.items() if names) or "-"
