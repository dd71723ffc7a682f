"""A resource's options and settings: a mapping into the attrs class that checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import attrs

from mstar_core.errors import ConfigError, Words
from mstar_core.names import suggest

T = TypeVar("T")


def read_settings(cls: type[T], given: Mapping[str, Any], where: str) -> T:
    """``cls(**given)``; an unknown, missing or refused value is a ConfigError below ``where``."""
    fields = {a.name: a for a in attrs.fields(cast(Any, cls))}
    for name in given:
        if name not in fields:
            raise ConfigError(
                where=where,
                got=Words(f"unknown key {name!r}"),
                want=f"one of: {', '.join(sorted(fields)) or 'no keys'}",
                fix=suggest(name, fields),
            )
    missing = [n for n, a in fields.items() if a.default is attrs.NOTHING and n not in given]
    if missing:
        raise ConfigError(
            where=where,
            got=Words("nothing"),
            want=", ".join(missing),
            fix=f"give {missing[0]}",
        )
    try:
        return cls(**given)
    except ConfigError as error:
        raise error.under(where) from None


def missing_role(kind: str, key: str, role: str) -> ConfigError:
    """The error of a spec that does not name a resource which its kind reads."""
    return ConfigError(
        where=f"resource {key}.depends_on",
        got=Words(f"no {role!r}"),
        want=f"the key of the {role} resource that {kind} reads",
        fix=f"write depends_on={{{role!r}: KEY}} and declare KEY before {key!r}",
    )
