"""Does a plugin fit this core and this machine? Answered before it is imported.

Four questions, in this order: the range of ``mstar-core`` that its distribution requires, the hook
API that its manifest was written for, the operations it needs, the hardware it runs on.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from mstar_core import __version__
from mstar_core.errors import Refusal
from mstar_core.names import suggest
from mstar_core.plugins.hardware import Hardware
from mstar_core.plugins.manifest import Manifest
from mstar_core.plugins.record import PluginRecord

API = 1
"""The hook API of this core: it rises by one whenever a hook is added."""
MIN_API = 1
"""The oldest hook API whose plugins still work here."""
CORE = "mstar-core"


def judge(record: PluginRecord, operations: Collection[str], hardware: Hardware) -> PluginRecord:
    """``record`` as ready, or as incompatible or without hardware, with the reason.

    ``operations`` are those that the core or any installed plugin implements.
    """
    manifest = record.manifest
    if manifest is None:
        return record
    refusal = (
        _core_range(record) or _hook_api(record, manifest) or _needs(record, manifest, operations)
    )
    if refusal is not None:
        return evolve(record, state="incompatible", refusal=refusal)
    refusal = _hardware(record, manifest, hardware)
    if refusal is not None:
        return evolve(record, state="no hardware", refusal=refusal)
    return record


def _core_range(record: PluginRecord) -> Refusal | None:
    wanted = SpecifierSet()
    for line in record.requires:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if canonicalize_name(requirement.name) == CORE and applies:
            wanted &= requirement.specifier
    if wanted.contains(Version(__version__), prereleases=True):
        return None
    floor = [Version(s.version) for s in wanted if s.operator in (">=", ">", "~=", "==")]
    core_is_old = any(
        version > Version(__version__) for version in floor if "*" not in str(version)
    )
    mend = f"'{CORE}{wanted}'" if core_is_old else record.distribution
    return _refusal(
        record,
        "core-too-old" if core_is_old else "core-too-new",
        got=f"{CORE} {__version__}",
        want=f"{CORE}{wanted}",
        fix=f"pip install -U {mend}",
    )


def _hook_api(record: PluginRecord, manifest: Manifest) -> Refusal | None:
    if MIN_API <= manifest.api <= API:
        return None
    too_new = manifest.api > API
    return _refusal(
        record,
        "api-too-new" if too_new else "api-too-old",
        got=f"written for hook API {manifest.api}",
        want=f"hook API {API}" if MIN_API == API else f"hook API {MIN_API} to {API}",
        fix=f"pip install -U {CORE if too_new else record.distribution}",
    )


def _needs(record: PluginRecord, manifest: Manifest, operations: Collection[str]) -> Refusal | None:
    for operation in manifest.needs_ops:
        if operation not in operations:
            return _refusal(
                record,
                "unknown-operation",
                got=f"needs the operation {operation!r}, which nothing installed implements",
                want=f"one of: {', '.join(sorted(operations))}",
                fix=f"pip install -U {CORE}, or in its manifest {suggest(operation, operations)}",
            )
    return None


def _hardware(record: PluginRecord, manifest: Manifest, hardware: Hardware) -> Refusal | None:
    if any(kind == "cpu" or hardware.fits(kind) for kind in manifest.hardware):
        return None
    return _refusal(
        record,
        "no-hardware",
        got=f"this machine has {', '.join(hardware.names())}",
        want=" or ".join(manifest.hardware),
        fix=f"use such a machine, or pip uninstall {record.distribution}",
    )


def _refusal(record: PluginRecord, code: str, *, got: str, want: str, fix: str) -> Refusal:
    return Refusal(
        code=code, where=record.release, got=got, want=want, fix=fix, owner=record.distribution
    )
