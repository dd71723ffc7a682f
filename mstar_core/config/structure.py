"""Located values to a configuration class: each value typed, origin kept, each error told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_type_hints

import attrs
from attrs import define, field

from mstar_core.config.findings import list_words, raise_all
from mstar_core.config.located import DEFAULT, Located, Origin
from mstar_core.config.types import (
    default_value,
    describe_type,
    is_optional,
    is_section,
    mapping_item,
    options_of,
    read_value,
)
from mstar_core.errors import ConfigError, Words
from mstar_core.names import nearest, normalise

T = TypeVar("T")
_FAILED = object()


@define(kw_only=True)
class Reading:
    """One pass over a configuration: what was read, where each value came from, what is wrong."""

    default_origin: Origin = DEFAULT
    """The origin of a value that nobody wrote."""
    owners: Mapping[str, tuple[str, ...]] = field(factory=dict)
    """Key name to the sections that own it, to say where a misplaced key belongs."""
    moved: Mapping[str, str] = field(factory=dict)
    """Dotted path of a key that is no longer read, to where its setting lives now."""
    errors: list[ConfigError] = field(factory=list)
    values: dict[str, object] = field(factory=dict)
    origin: dict[str, Origin] = field(factory=dict)

    def section(self, cls: type[T], at: Located, path: str) -> T | None:
        """Read ``cls`` from a mapping. None if it could not be built; ``errors`` says why."""
        if at.value is None:
            at = Located({}, at.origin)
        if not at.is_mapping:
            self.refuse(at, path, at.plain(), "a mapping of settings", "write key: value below it")
            return None
        hints = get_type_hints(cls, include_extras=True)
        fields = {a.name: a for a in attrs.fields(cast(Any, cls)) if a.init}
        for key, value in at.value.items():
            if key not in fields:
                self.errors.append(self.unknown_key(key, value, path, list(fields)))
        given = {
            name: self.read_field(attribute, hints[name], at, _join(path, name))
            for name, attribute in fields.items()
        }
        return self.build(cls, given, at, path)

    def read_field(self, attribute: Any, hint: Any, at: Located, path: str) -> Any:
        """One field: what was written, or its default."""
        written = at.value.get(attribute.name)
        if written is not None:
            return self.value(hint, written, path)
        default = attribute.default
        if default is attrs.NOTHING and not is_section(hint):
            self.refuse(at, path, Words("nothing"), describe_type(hint), "add this key")
            return _FAILED
        if is_section(hint):
            built = self.section(hint, Located({}, at.origin), path)
            return _FAILED if built is None else built
        value = default_value(default)
        self.record(
            path, value.plain() if isinstance(value, Located) else value, self.default_origin
        )
        return value

    def value(self, hint: Any, at: Located, path: str) -> Any:
        """A written value of any type a configuration class can use, or _FAILED."""
        (option, *more) = options_of(hint)
        if at.value is not None or not is_optional(hint):
            if option is Located:
                return self.raw(at, path)
            if is_section(option) and not more:
                built = self.section(option, at, path)
                return _FAILED if built is None else built
            if (item := mapping_item(option)) is not None:
                return self.mapping(item, at, path)
        try:
            value = read_value(hint, at, path)
        except ConfigError as error:
            self.errors.append(error)
            return _FAILED
        self.record(path, value, at.origin)
        return value

    def mapping(self, item: Any, at: Located, path: str) -> Any:
        """A mapping of names to values of one type."""
        if at.value is not None and not at.is_mapping:
            self.refuse(at, path, at.plain(), "a mapping", "write name: value below it")
            return _FAILED
        read = {k: self.value(item, v, _join(path, k)) for k, v in (at.value or {}).items()}
        return _FAILED if any(v is _FAILED for v in read.values()) else read

    def raw(self, at: Located, path: str) -> Any:
        """A mapping that a plugin's class reads later; its leaves are recorded as written."""
        if at.value is None:
            return Located({}, at.origin)
        if not at.is_mapping:
            self.refuse(at, path, at.plain(), "a mapping of settings", "write key: value below it")
            return _FAILED
        for name, leaf in _leaves(at, path):
            self.record(name, leaf.plain(), leaf.origin)
        return at

    def build(self, cls: type[T], given: dict[str, Any], at: Located, path: str) -> T | None:
        """Run each field's validator, then make the instance."""
        draft = object.__new__(cls)
        for name, value in given.items():
            if value is not _FAILED:
                object.__setattr__(draft, name, value)
        before = len(self.errors)
        for attribute in attrs.fields(cast(Any, cls)):
            if attribute.validator is None or given.get(attribute.name, _FAILED) is _FAILED:
                continue
            try:
                attribute.validator(draft, attribute, given[attribute.name])
            except ConfigError as error:
                self.errors.append(self.placed(error, at, path))
            except (ValueError, TypeError) as error:
                self.errors.append(self.foreign(error, attribute.name, given, at, path))
        if len(self.errors) > before or any(value is _FAILED for value in given.values()):
            return None
        try:
            return cls(**given)
        except ConfigError as error:
            self.errors.append(self.placed(error, at, path))
            return None

    def placed(self, error: ConfigError, at: Located, path: str) -> ConfigError:
        """The error of a class that knows its field names, with file, line and full path."""
        name = error.where.split(".")[0].split("[")[0]
        origin = at.value[name].origin if name in at.value else at.origin
        return attrs.evolve(error, where=origin.where(_join(path, error.where)))

    def foreign(
        self, error: Exception, name: str, given: dict[str, Any], at: Located, path: str
    ) -> ConfigError:
        """The error of a validator that raises a plain ValueError or TypeError."""
        want = str(error.args[0]) if error.args else str(error)
        plain = ConfigError(where=name, got=given[name], want=want, fix="write such a value")
        return self.placed(plain, at, path)

    def unknown_key(self, key: str, at: Located, path: str, known: list[str]) -> ConfigError:
        """A key that this section does not have: where it moved, who owns it, or the nearest."""
        full, here = _join(path, key), path or "the top level"
        plain = normalise(key)
        owned = next((name for name in self.owners if normalise(name) == plain), key)
        elsewhere = [s for s in self.owners.get(owned, ()) if s != path]
        if full in self.moved:
            fix = f"{full} is now {self.moved[full]}; write it there"
        elif elsewhere and owned not in known:
            sections = " or ".join(section or "the top level" for section in elsewhere)
            fix = f"move it: {owned} belongs to {sections}"
        elif guess := nearest(key, known):
            fix = f"write {guess}"
        else:
            fix = "remove it"
        want = f"a key of {here}: {list_words(known)}"
        return ConfigError(where=at.origin.where(full), got=Words(key), want=want, fix=fix)

    def refuse(self, at: Located, path: str, got: object, want: str, fix: str) -> None:
        where = at.origin.where(path or "(the whole file)")
        self.errors.append(ConfigError(where=where, got=got, want=want, fix=fix))

    def record(self, path: str, value: object, origin: Origin) -> None:
        self.values[path] = value
        self.origin[path] = origin


def structure(cls: type[T], at: Located, path: str = "", reading: Reading | None = None) -> T:
    """Read one configuration class from ``at``. Raises ConfigError, or ConfigErrors for several.

    ``path`` is the dotted path of ``at``; ``reading`` collects values and origins when given.
    """
    reading = reading or Reading()
    built = reading.section(cls, at, path)
    raise_all(reading.errors, at.origin.where(path) or "configuration")
    return cast(T, built)


def _leaves(at: Located, path: str) -> list[tuple[str, Located]]:
    if not at.is_mapping or not at.value:
        return [(path, at)]
    return [leaf for key, item in at.value.items() for leaf in _leaves(item, _join(path, key))]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
