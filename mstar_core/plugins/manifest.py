"""``mstar_plugin.toml``: what a plugin says of itself, read without importing it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from mstar_core.errors import PluginError, Words
from mstar_core.names import suggest

FILE_NAME = "mstar_plugin.toml"
HARDWARE = re.compile(r"(?P<kind>cpu|cuda|rocm)(>=(?P<major>\d+)(\.(?P<minor>\d+))?)?")
"""``cpu``, ``cuda``, ``cuda>=9.0`` (compute capability), ``rocm``."""


@frozen(kw_only=True)
class Offers:
    """Names that a plugin brings. A backend is written ``operation.name``."""

    models: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()

    def names(self) -> frozenset[str]:
        """Every offer as ``kind name``, for comparing two sets of offers."""
        return frozenset(
            f"{kind[:-1]} {name}" for kind, names in asdict(self).items() for name in names
        )


@frozen(kw_only=True)
class Manifest:
    """One plugin's own word about itself."""

    api: int
    """The hook API it was written for."""
    title: str
    offers: Offers = field(factory=Offers)
    needs_ops: tuple[str, ...] = ()
    """Operations that somebody must implement for it to run."""
    hardware: tuple[str, ...] = ("cpu",)
    """Where it can run; any one of them is enough."""
    capabilities: Mapping[str, Any] = field(factory=dict)
    """What it claims to be able to do; each claim is a test of the kit."""
    not_run_on: tuple[str, ...] = ()
    """Hardware of its list on which nobody has run it yet: written against fakes, and said so."""
    configs: str | None = None
    """The folder of YAML files within its package."""
    renamed: Mapping[str, str] = field(factory=dict)
    """Old name → new name, of plugins or of what they offer."""
    folder: Path
    """The package's folder."""

    def config_files(self) -> tuple[Path, ...]:
        """The YAML files it ships, sorted by name."""
        return tuple(sorted((self.folder / self.configs).glob("*.yaml"))) if self.configs else ()


def read_manifest(folder: Path) -> Manifest:
    """The manifest in a package's ``folder``. Raises PluginError on the first thing wrong in it."""
    path = folder / FILE_NAME
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _wrong(folder, Words("no such file"), FILE_NAME, f"add {FILE_NAME}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, Words(str(error)), "a TOML file", "correct that line") from None
    _known(path, "", table, _KEYS)
    for key in ("api", "title"):
        if key not in table:
            raise _wrong(path, Words(f"no {key}"), f"{key} = …", f"add {key}")
    values = {key: read(path, key, table[key]) for key, read in _KEYS.items() if key in table}
    return Manifest(folder=folder, **values)


def _integer(path: Path, key: str, value: object) -> int:
    if type(value) is not int:
        raise _wrong(f"{path}: {key}", value, "an integer", f"write {key} = 1")
    return value


def _text(path: Path, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(f"{path}: {key}", value, "a string", f'write {key} = "…"')
    return value


def _texts(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        raise _wrong(f"{path}: {key}", value, "a list of strings", f'write {key} = ["…"]')
    if len(set(value)) < len(value):
        raise _wrong(f"{path}: {key}", value, "each name once", "remove the second one")
    return tuple(value)


def _table(path: Path, key: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(f"{path}: {key}", value, "a table", f"write it under [{key}]")
    return value


def _offers(path: Path, key: str, value: object) -> Offers:
    table = _table(path, key, value)
    _known(path, "offers.", table, ("models", "resources", "backends"))
    offers = Offers(**{name: _texts(path, f"offers.{name}", table[name]) for name in table})
    for backend in offers.backends:
        if not re.fullmatch(r"\w+\.\w+", backend):
            where = f"{path}: offers.backends"
            raise _wrong(where, backend, "operation.name", 'write it like "sampling.fast"')
    return offers


def _hardware(path: Path, key: str, value: object) -> tuple[str, ...]:
    kinds = _texts(path, key, value)
    for kind in kinds:
        if HARDWARE.fullmatch(kind) is None:
            want = "cpu, cuda, cuda>=MAJOR.MINOR or rocm"
            raise _wrong(f"{path}: {key}", kind, want, suggest(kind, ("cpu", "cuda", "rocm")))
    return kinds


def _renamed(path: Path, key: str, value: object) -> dict[str, str]:
    return {old: _text(path, f"{key}.{old}", new) for old, new in _table(path, key, value).items()}


_KEYS: Mapping[str, Any] = {
    "api": _integer,
    "title": _text,
    "offers": _offers,
    "needs_ops": _texts,
    "hardware": _hardware,
    "not_run_on": _hardware,
    "capabilities": _table,
    "configs": _text,
    "renamed": _renamed,
}


def _known(path: Path, prefix: str, table: Mapping[str, object], keys: Any) -> None:
    for key in table:
        if key not in keys:
            want = f"one of: {', '.join(sorted(keys))}"
            raise _wrong(path, Words(f"unknown key {prefix}{key}"), want, suggest(key, keys))


def _wrong(where: object, got: object, want: str, fix: str) -> PluginError:
    return PluginError(where=str(where), got=got, want=want, fix=fix)
