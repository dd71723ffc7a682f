"""A path or name and ``--set`` values to one checked configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

import attrs
from attrs import define, field

from mstar_core.config.find import ShippedConfigs, find_file, no_plugin_configs, read_file
from mstar_core.config.findings import raise_all
from mstar_core.config.located import Located, Origin
from mstar_core.config.read import read_yaml
from mstar_core.config.schema import MOVED, Config
from mstar_core.config.structure import Reading
from mstar_core.config.types import is_section, mapping_item
from mstar_core.errors import UsageError

T = TypeVar("T")


@define(kw_only=True)
class Resolved:
    """A configuration and, for every dotted path, its value and where that came from."""

    config: Config
    file: Path
    values: dict[str, object] = field(factory=dict)
    origin: dict[str, Origin] = field(factory=dict)

    @property
    def checkpoint(self) -> str | None:
        """``model.path``; a ``./`` or ``../`` that a file has starts at that file's folder."""
        path = self.config.model.path
        from_file = self.origin["model.path"].kind == "file"
        if path and from_file and re.match(r"\.\.?(/|$)", path):
            return str((self.file.parent / path).resolve())
        return path

    def derive(self, path: str, value: object, detail: str) -> None:
        """Note a value that was worked out; ``detail`` says how: ``a quarter of free memory``."""
        self.note(path, value, Origin("derived", detail))

    def note(self, path: str, value: object, origin: Origin) -> None:
        """Note a value that ``describe`` shows, with any origin."""
        self.values[path] = value
        self.origin[path] = origin

    def structure_options(
        self, cls: type[T], *, owner: str, neighbours: Mapping[str, type] | None = None
    ) -> T:
        """``model.options`` as an instance of the model plugin's class.

        ``owner`` is the distribution that declares it; ``neighbours`` maps the dotted place of
        other such classes (``nodes.text.resources.kv``) to them, so that an error can say which
        one owns a misplaced key. Raises ConfigError, or ConfigErrors for several.
        """
        return self._claim("model.options", self.config.model.options, cls, owner, neighbours)

    def structure_resource(
        self,
        node: str,
        key: str,
        cls: type[T],
        *,
        owner: str,
        neighbours: Mapping[str, type] | None = None,
    ) -> T:
        """``nodes.NODE.resources.KEY`` as an instance of the resource's class; see above."""
        written = self.config.nodes.get(node)
        at = written.resources.get(key) if written else None
        path = f"nodes.{node}.resources.{key}"
        return self._claim(path, at or Located({}), cls, owner, neighbours)

    def _claim(
        self,
        path: str,
        at: Located,
        cls: type[T],
        owner: str,
        neighbours: Mapping[str, type] | None,
    ) -> T:
        owners = dict(SCHEMA_OWNERS)
        for place, other in (neighbours or {}).items():
            for name in attrs.fields_dict(cast(Any, other)):
                owners[name] = (*owners.get(name, ()), place)
        reading = Reading(default_origin=Origin("plugin", owner), owners=owners)
        built = reading.section(cls, at, path)
        raise_all(reading.errors, at.origin.where(path))
        for name in [n for n in self.values if n == path or n.startswith(f"{path}.")]:
            del self.values[name], self.origin[name]
        self.values.update(reading.values)
        self.origin.update(reading.origin)
        return cast(T, built)


def resolve(
    path_or_name: str | Path,
    sets: Sequence[str] = (),
    shipped: ShippedConfigs = no_plugin_configs,
) -> Resolved:
    """Find, read and check one configuration; ``sets`` are ``dotted.key=value`` texts.

    Raises ConfigError (ConfigErrors for several) for what is wrong in it, UsageError for a
    ``--set`` that is not of that form.
    """
    if isinstance(sets, str):
        raise UsageError(
            where="sets",
            got=sets,
            want="a list of dotted.key=value texts, also for one",
            fix=f"write [{sets!r}]",
        )
    file = find_file(str(path_or_name), shipped)
    root = read_file(file)
    for text in sets:
        root = _with_set(root, text)
    reading = Reading(owners=SCHEMA_OWNERS, moved=MOVED)
    config = reading.section(Config, root, "")
    raise_all(reading.errors, file.name)
    resolved = Resolved(
        config=cast(Config, config), file=file, values=reading.values, origin=reading.origin
    )
    if resolved.config.engine.capture.rows is None:
        rows = list(resolved.config.engine.capture_rows)
        resolved.derive("engine.capture.rows", rows, "from engine.max_rows")
    if resolved.config.engine.capture.tokens is None:
        tokens = list(resolved.config.engine.capture_tokens)
        resolved.derive("engine.capture.tokens", tokens, "from engine.token_budget")
    return resolved


def _with_set(root: Located, text: str) -> Located:
    """``root`` with the value of one ``dotted.key=value`` in it."""
    path, equals, written = text.partition("=") if isinstance(text, str) else ("", "", "")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UsageError(
            where="--set",
            got=text,
            want="dotted.key=value, such as engine.max_rows=8",
            fix="write the key, an equals sign and the value",
        )
    origin = Origin("set", f"--set {path.strip()}")
    value = read_yaml(written, f"--set {path.strip()}", lambda line: origin)
    return _placed(root, keys, value, origin)


def _placed(at: Located, keys: list[str], value: Located, origin: Origin) -> Located:
    if not keys:
        return value
    inside = dict(at.value) if at.is_mapping else {}
    child = inside.get(keys[0], Located({}, origin))
    inside[keys[0]] = _placed(child, keys[1:], value, origin)
    return Located(inside, at.origin)


def _owners(cls: type, section: str = "") -> dict[str, tuple[str, ...]]:
    """Key name to the dotted sections of the schema that have it."""
    out: dict[str, tuple[str, ...]] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        out[name] = (*out.get(name, ()), section)
        path = f"{section}.{name}" if section else name
        item = mapping_item(hint)
        inner = hint if is_section(hint) else item if is_section(item) else None
        if inner is not None:
            place = path if item is None else f"{path}.NODE"
            for key, sections in _owners(inner, place).items():
                out[key] = (*out.get(key, ()), *sections)
    return out


SCHEMA_OWNERS: Mapping[str, tuple[str, ...]] = _owners(Config)
