"""From what is installed to what may be loaded: one record per plugin, with its state.

Asked in this order, first answer wins: is it allowed, is it disabled, can it be read, was it
renamed, is its name or an offer of its claimed by another plugin too, does it fit this core and
this machine. The order of installation never matters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from attrs import evolve, frozen
from packaging.requirements import InvalidRequirement

from mstar_core.errors import ConfigError, Refusal
from mstar_core.names import normalise, suggest
from mstar_core.plugins.builtin import CORE_OFFERS, OPERATIONS
from mstar_core.plugins.compatible import judge
from mstar_core.plugins.hardware import Hardware, this_machine
from mstar_core.plugins.index import broken, installed
from mstar_core.plugins.record import PluginRecord, State


@frozen(kw_only=True)
class NameLists:
    """Plugins that a person switched off or restricted to, by plugin or distribution name."""

    disable: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    """Only these may load. An empty list allows every plugin."""
    where: str = "plugins"
    """Who says so: the configuration's section, or the flags."""


def discover(*lists: NameLists, hardware: Hardware | None = None) -> tuple[PluginRecord, ...]:
    """Every installed plugin, sorted by name. Imports none of them.

    Raises ConfigError where a list names a plugin that nobody has.
    """
    records = installed()
    for each in lists:
        _names_exist(each, records)
    records = tuple(_listed(record, lists) for record in records)
    records = _renamed(records)
    records = _one_owner(records)
    operations = OPERATIONS | {
        backend.partition(".")[0]
        for r in records
        if r.state == "ready"
        for backend in r.offers.backends
    }
    here = hardware or this_machine()
    return tuple(_judged(record, operations, here) for record in records)


def _judged(
    record: PluginRecord, operations: frozenset[str] | set[str], here: Hardware
) -> PluginRecord:
    if record.state != "ready":
        return record
    try:
        return judge(record, operations, here)
    except InvalidRequirement as error:
        fix = f"pip install --force-reinstall {record.distribution}"
        return broken(record, "bad-metadata", got=str(error), want="Requires-Dist lines", fix=fix)


def _names(record: PluginRecord) -> set[str]:
    return {normalise(record.name), normalise(record.distribution)}


def _names_exist(lists: NameLists, records: Sequence[PluginRecord]) -> None:
    known = {name for record in records for name in (record.name, record.distribution)}
    renamed = _tombstones(records)
    for key, names in (("disable", lists.disable), ("allow", lists.allow)):
        for name in names:
            if normalise(name) in {normalise(each) for each in known}:
                continue
            raise ConfigError(
                where=f"{lists.where}: {key}",
                got=name,
                want="the name of an installed plugin, or of its distribution",
                fix=f"write {renamed[name]!r}" if name in renamed else suggest(name, known),
            )


def _listed(record: PluginRecord, lists: Sequence[NameLists]) -> PluginRecord:
    for each in lists:
        if each.allow and not _names(record) & {normalise(name) for name in each.allow}:
            want = f"one of: {', '.join(each.allow)}"
            fix = f"add {record.name!r} to the allow list"
            return _as(record, "not allowed", f"not on the allow list of {each.where}", want, fix)
    for each in lists:
        if _names(record) & {normalise(name) for name in each.disable}:
            got, want = f"on the disable list of {each.where}", "a plugin that may be loaded"
            return _as(record, "disabled", got, want, f"take {record.name!r} off the list")
    return record


def _tombstones(records: Sequence[PluginRecord]) -> Mapping[str, str]:
    return {old: new for r in records if r.manifest for old, new in r.manifest.renamed.items()}


def _renamed(records: Sequence[PluginRecord]) -> tuple[PluginRecord, ...]:
    """A plugin whose name another one lists as its old name gives way to it."""
    heirs = {
        old: (new, record)
        for record in records
        if record.state == "ready" and record.manifest
        for old, new in record.manifest.renamed.items()
    }

    def one(record: PluginRecord) -> PluginRecord:
        if record.state not in ("ready", "broken") or record.name not in heirs:
            return record
        new, heir = heirs[record.name]
        if heir.distribution == record.distribution:
            return record
        got = f"renamed to {new!r}, which {heir.release} brings"
        return _as(record, "renamed", got, f"{new!r}", f"pip uninstall {record.distribution}")

    return tuple(one(record) for record in records)


def _one_owner(records: Sequence[PluginRecord]) -> tuple[PluginRecord, ...]:
    """Nobody wins silently: of plugins that claim one name, none loads until a person chooses."""
    claims: dict[str, list[PluginRecord]] = defaultdict(list)
    for record in records:
        if record.state == "ready":
            for name in ("plugin " + normalise(record.name), *sorted(record.offers.names())):
                claims[name].append(record)

    def one(record: PluginRecord) -> PluginRecord:
        if record.state != "ready":
            return record
        for name in ("plugin " + normalise(record.name), *sorted(record.offers.names())):
            if name in CORE_OFFERS:
                got = f"claims {name}, which is the core's own"
                return _as(record, "shadowed", got, "a name of its own", "rename it in the plugin")
            others = [rival for rival in claims[name] if rival is not record]
            if others:
                rivals = " and ".join(rival.release for rival in others)
                got = f"{name} is also claimed by {rivals}"
                choices = f"pip uninstall {record.distribution}, or disable one by distribution"
                return _as(record, "shadowed", got, "one owner per name", choices)
        return record

    return tuple(one(record) for record in records)


def _as(record: PluginRecord, state: State, got: str, want: str, fix: str) -> PluginRecord:
    refusal = Refusal(
        code=state.replace(" ", "-"),
        where=record.release,
        got=got,
        want=want,
        fix=fix,
        owner=record.distribution,
    )
    return evolve(record, state=state, refusal=refusal)
