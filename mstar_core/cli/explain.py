"""``mstar-core explain CONFIG``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.tables import columns, print_json
from mstar_core.config import Origin, Resolved, describe, generation_defaults
from mstar_core.config.generation import FILE
from mstar_core.errors import CheckpointError, PluginError, Words
from mstar_core.model.hub import resolve_checkpoint
from mstar_core.plugins.load import load_plugins, select_for
from mstar_core.plugins.record import PluginRecord


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("explain", help="every value and where it came from")
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print every value of CONFIG and where it came from.

    An origin is default, file (with its line), set, plugin (its distribution's own default) or
    derived (with the reason). Touches no device and loads no weights; of the plugins only the one
    that brings the model is imported. The checkpoint's generation defaults are shown where it is
    on this machine: a folder, or in the hub's cache.

    Exit code: 0 usable, 1 a setting is wrong, 2 the command line is wrong.

    Example:  mstar-core explain chat.yaml --set engine.in_flight=2
    """
    resolved, records = resolve_arguments(args)
    read_options(resolved, records)
    note_generation_defaults(resolved)
    rows = describe(resolved)
    if args.json:
        print_json({"file": str(resolved.file), "values": [row.as_dict() for row in rows]})
    else:
        told = [(row.path, row.text, str(row.origin)) for row in rows]
        print(columns([("KEY", "VALUE", "ORIGIN"), *told]))
    return 0


def read_options(resolved: Resolved, records: Sequence[PluginRecord]) -> None:
    """Check ``model.options`` with the class that the model's plugin declares, if it declares one.

    Raises PluginError where no ready plugin brings the model or its plugin cannot be loaded.
    """
    model = resolved.config.model.name
    selected = select_for(model, records)
    owners = [r for r in records if r.name in selected and model in r.offers.models]
    for owner in owners:
        wiring = load_plugins([owner.name], resolved.config, records=records)
        wiring.require(owner.name)
        for answer in wiring.ask("config_schema").answers:
            if answer.error is not None:
                raise PluginError(
                    where=answer.error.where,
                    got=Words(answer.error.got),
                    want=answer.error.want,
                    fix=answer.error.fix,
                )
            if answer.value is not None and not _is_schema(answer.value):
                raise PluginError(
                    where=f"{answer.plugin}: config_schema",
                    got=answer.value,
                    want="an attrs class, or None for no opinion",
                    fix=f"report it to the authors of {owner.distribution}",
                )
            if answer.value is not None:
                resolved.structure_options(answer.value, owner=owner.distribution)


def _is_schema(answer: object) -> bool:
    from attrs import has

    return isinstance(answer, type) and has(answer)


def note_generation_defaults(resolved: Resolved) -> None:
    """Add the checkpoint's own sampling and stop settings, where it is on this machine already."""
    model = resolved.config.model
    if resolved.checkpoint is None:
        return
    try:
        folder = resolve_checkpoint(resolved.checkpoint, model.revision, offline=True)
    except CheckpointError:
        return  # explain needs no checkpoint; ``check`` says what is wrong with it
    for name, value in generation_defaults(folder).items():
        resolved.note(f"generation.{name}", value, Origin("file", FILE))
