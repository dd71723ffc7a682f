"""Which plugins are installed: entry points and manifests, read without importing anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

from attrs import evolve

from mstar_core.errors import MstarError, PluginError, Refusal, Words
from mstar_core.plugins.manifest import read_manifest
from mstar_core.plugins.record import Origin, PluginRecord

GROUP = "mstar_core.plugins"
"""The entry-point group; one name per distribution, naming its light module."""


def installed() -> tuple[PluginRecord, ...]:
    """Every entry point of the group, sorted by name; the same distribution counts once.

    A distribution or a manifest that cannot be read is a ``broken`` record, never an error.
    """
    found: dict[str, tuple[PluginRecord, ...]] = {}
    for distribution in distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
            if f"[{GROUP}]" in text.replace(" ", ""):
                records = tuple(_records(distribution))
                found.setdefault(_canonical(distribution.name), records)
        except Exception as error:
            place = str(getattr(distribution, "_path", "a distribution on sys.path"))
            found.setdefault(place, (_unreadable(place, error),))
    records = tuple(record for group in found.values() for record in group)
    return tuple(sorted(records, key=lambda record: (record.name, record.distribution)))


def broken(record: PluginRecord, code: str, *, got: str, want: str, fix: str) -> PluginRecord:
    """``record`` in the state ``broken``, with its one reason."""
    refusal = Refusal(
        code=code, where=record.release, got=got, want=want, fix=fix, owner=record.distribution
    )
    return evolve(record, state="broken", refusal=refusal)


def broken_by(record: PluginRecord, code: str, error: MstarError) -> PluginRecord:
    """``record`` in the state ``broken``, with an error's four facts as its reason."""
    facts = error.facts()
    got = f"{facts['where']}: {facts['got']}"
    return broken(record, code, got=got, want=facts["want"], fix=facts["fix"])


def _records(distribution: Distribution) -> Iterator[PluginRecord]:
    seen: dict[str, str] = {}
    points = [point for point in distribution.entry_points if point.group == GROUP]
    for point in sorted(points, key=lambda point: point.name):
        record = PluginRecord(
            name=point.name,
            distribution=distribution.name,
            version=distribution.version,
            origin=_origin(distribution),
            module=point.value,
            requires=tuple(distribution.requires or ()),
        )
        if point.value in seen:
            yield broken(
                record,
                "module-named-twice",
                got=f"{point.value} is already the plugin {seen[point.value]!r}",
                want="one entry point per module",
                fix=f"remove one of the two from the entry points of {record.distribution}",
            )
        else:
            seen[point.value] = point.name
            yield _with_manifest(record)


def _with_manifest(record: PluginRecord) -> PluginRecord:
    """The record with its package's manifest, or the reason there is none."""
    package = record.module.partition(".")[0]
    reinstall = f"pip install --force-reinstall {record.distribution}"
    if not re.fullmatch(r"\w+(\.\w+)+", record.module):
        return broken(
            record,
            "bad-entry-point",
            got=record.module,
            want="a module inside a package, such as mstar_x.plugin",
            fix=f"correct the entry point of {record.distribution}",
        )
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        got = f"there is no package {package}"
        return broken(record, "no-package", got=got, want=record.module, fix=reinstall)
    try:
        return evolve(record, manifest=read_manifest(Path(spec.submodule_search_locations[0])))
    except PluginError as error:
        return broken_by(record, "bad-manifest", error)
    except OSError as error:
        got = f"{type(error).__name__}: {error}"
        return broken(record, "bad-manifest", got=got, want="a readable manifest", fix=reinstall)


def _origin(distribution: Distribution) -> Origin:
    direct = distribution.read_text("direct_url.json")
    if direct and json.loads(direct).get("dir_info", {}).get("editable"):
        return "editable"
    return "wheel" if distribution.read_text("INSTALLER") else "path"


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _unreadable(place: str, error: Exception) -> PluginRecord:
    name = Path(place).name.removesuffix(".dist-info")
    record = PluginRecord(name=name, distribution=name, version="?", origin="path", module="?")
    return broken_by(
        record,
        "bad-metadata",
        PluginError(
            where=place,
            got=Words(f"{type(error).__name__}: {error}"),
            want="readable metadata",
            fix=f"remove {place} and install the distribution again",
        ),
    )
