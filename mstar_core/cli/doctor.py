"""``mstar-core doctor``."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from attrs import frozen

from mstar_core import __version__
from mstar_core.cli.tables import columns, print_json, why
from mstar_core.errors import MstarError, Refusal, UsageError
from mstar_core.names import suggest
from mstar_core.plugins.discover import discover
from mstar_core.plugins.hardware import Hardware, this_machine
from mstar_core.plugins.load import load_plugins
from mstar_core.plugins.probe import probe_all
from mstar_core.plugins.record import WRONG, PluginRecord
from mstar_core.plugins.registry import BackendOffer
from mstar_core.plugins.wiring import Wiring

SCHEMA = 1
PACKAGES = (
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "numpy",
    "attrs",
    "pluggy",
    "soundfile",
)


@frozen(kw_only=True)
class DoctorContext:
    """What a plugin's ``doctor_checks`` may know of this machine."""

    devices: tuple[str, ...]
    """``cpu``, then each accelerator: ``cuda 9.0``, ``rocm``."""


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("doctor", help="this machine")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these plugins")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")


def run(args: argparse.Namespace) -> int:
    """Examine this machine: versions, devices, which backends apply here and why others do not.

    Each plugin (or each NAME) is first loaded in a process of its own; those that survive are then
    asked for their own checks. Exit code 1 if a plugin is broken or finds something missing.
    """
    records = _chosen(discover(), args.names)
    probed = probe_all(records)
    wiring = load_plugins([r.name for r in probed if r.state == "ready"], records=probed)
    here = this_machine()
    context = DoctorContext(devices=here.names())
    asked = wiring.ask("doctor_checks", context=context)
    found = {answer.plugin: answer.value or () for answer in asked.answers}
    for failed in asked.findings:
        found[failed.owner] = (failed,)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "core": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "devices": list(context.devices),
        "backends": [_backend(offer, here) for offer in _offers(wiring)],
        "plugins": [_plugin(record, found.get(record.name, ())) for record in wiring.records],
    }
    print_json(report) if args.json else print(_text(report))
    return int(any(row["state"] in WRONG or row["findings"] for row in report["plugins"]))


def _chosen(records: Sequence[PluginRecord], names: Sequence[str]) -> tuple[PluginRecord, ...]:
    known = {record.name for record in records}
    for name in names:
        if name not in known:
            want = f"one of: {', '.join(sorted(known))}" if known else "an installed plugin"
            fix = suggest(name, known)
            raise UsageError(where="mstar-core doctor", got=name, want=want, fix=fix)
    return tuple(record for record in records if not names or record.name in names)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _offers(wiring: Wiring) -> list[BackendOffer]:
    operations = wiring.backends.operations()
    return [offer for operation in operations for offer in wiring.backends.candidates(operation)]


def _backend(offer: BackendOffer, here: Hardware) -> dict[str, Any]:
    refusal = _refusal(offer, here)
    return {
        "operation": offer.operation,
        "name": offer.name,
        "owner": offer.owner,
        "priority": offer.priority,
        "basis": offer.basis,
        "applies": refusal is None,
        "why": refusal.as_dict() if refusal else None,
    }


def _refusal(offer: BackendOffer, here: Hardware) -> Refusal | None:
    """Why the backend cannot run here, or None if it can on some device of this machine."""
    where = f"{offer.operation}.{offer.name}"
    if offer.hardware and not any(here.fits(kind) for kind in offer.hardware):
        return Refusal(
            code="no-hardware",
            where=where,
            got=f"this machine has {', '.join(here.names())}",
            want=" or ".join(offer.hardware),
            fix="use such a machine, or another backend",
            owner=offer.owner,
        )
    try:
        backend = offer.load()
        refusals = [backend.available(device) for device in _kinds(here)]
    except Exception as error:
        got = str(error.facts()["got"]) if isinstance(error, MstarError) else repr(error)
        fix = f"reinstall {offer.owner.split()[0]}"
        want = "a backend that imports and answers"
        return Refusal(code="broken", where=where, got=got, want=want, fix=fix, owner=offer.owner)
    return None if None in refusals else refusals[0]


def _kinds(here: Hardware) -> Iterable[str]:
    return ("cpu", *(("cuda",) if here.cuda or here.rocm else ()))


def _plugin(record: PluginRecord, findings: Sequence[Refusal]) -> dict[str, Any]:
    return {**record.as_dict(), "findings": [finding.as_dict() for finding in findings]}


def _text(report: dict[str, Any]) -> str:
    lines = [f"mstar-core {report['core']}, Python {report['python']}, {report['platform']}"]
    lines += ["", "packages"]
    packages = report["packages"].items()
    lines += [f"  {name} {found or 'is not installed'}" for name, found in packages]
    lines += ["", f"devices: {', '.join(report['devices'])}", ""]
    rows = [("OPERATION", "BACKEND", "FROM", "HERE")]
    rows += [(b["operation"], b["name"], b["owner"], _here(b)) for b in report["backends"]]
    lines += [columns(rows)]
    for plugin in report["plugins"]:
        head = f"{plugin['name']} ({plugin['distribution']} {plugin['version']})"
        lines += ["", f"plugin {head}: {plugin['state']}"]
        refusals = [plugin["why"]] if plugin["why"] else []
        lines += [why(Refusal(**facts)) for facts in [*refusals, *plugin["findings"]]]
        lines += [f"    note: {note}" for note in plugin["notes"]]
        lines += [f"    hooks: {', '.join(plugin['hooks'])}"] if plugin["hooks"] else []
    return "\n".join(lines)


def _here(backend: dict[str, Any]) -> str:
    facts = backend["why"]
    if facts is not None:
        return f"no: {facts['got']}; want {facts['want']}"
    return f"applies; {backend['basis']}" if backend["basis"] else "applies"
