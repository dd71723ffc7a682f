"""What the fields of a request must be, whatever the engine: types, checked as it is built.

Numbers, lists and sets of numpy and Python are alike here; ``True`` is not a number, nor is one
text a list of texts. What only an engine knows (lengths, ids, limits) is asked at its door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, NoReturn

from attrs import Attribute

from mstar_core.config.sampling import SamplingSettings, plain
from mstar_core.errors import RequestError, Words

Check = Callable[[Any, "Attribute[Any]", Any], None]


def plain_set(value: Any) -> Any:
    """A list, tuple or set as a frozenset of plain integers; all else as it is."""
    if not isinstance(value, Set | list | tuple):
        return value
    try:
        return frozenset(map(plain, value))
    except TypeError:  # something in it that a set cannot hold
        return value


def plain_tuple(value: Any) -> Any:
    """A list as a tuple; all else as it is."""
    return tuple(value) if isinstance(value, list) else value


def exactly(kind: type, want: str, fix: str) -> Check:
    """A value of ``kind``, and nothing that merely counts as one."""

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        if type(value) is not kind:
            _refuse(attribute.name, value, want, fix)

    return check


def ids(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """A set of plain integers."""
    want, fix = "a set of token ids (whole numbers)", "leave it out, or write for example {2}"
    if not isinstance(value, frozenset):
        _refuse(attribute.name, value, want, fix)
    for one in value:
        if type(one) is not int:
            _refuse(attribute.name, one, want, fix)


def texts(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """A tuple of texts."""
    want, fix = "a tuple of texts", "leave it out, or write for example ('END',)"
    if not isinstance(value, tuple):
        _refuse(attribute.name, value, want, fix)
    for one in value:
        if not isinstance(one, str) or not one:
            _refuse(attribute.name, one, want + ", none of them empty", fix)


def named(what: str) -> Check:
    """A mapping whose keys are texts; ``what`` its values are."""

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        want, fix = f"a mapping of names to {what}", f"write for example {{'name': {what}}}"
        if not isinstance(value, Mapping):
            _refuse(attribute.name, value, want, fix)
        for name in value:
            if not isinstance(name, str):
                _refuse(attribute.name, name, want, fix)

    return check


def sampling(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """Sampling settings, which have been checked as they were built."""
    if not isinstance(value, SamplingSettings):
        want = "a SamplingSettings of mstar_core.config.sampling"
        _refuse(attribute.name, value, want, "leave it out, or build one")


def name(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """Text with something in it."""
    if not isinstance(value, str) or not value:
        _refuse(attribute.name, value, "text that is not empty", "leave the id out")


def _refuse(where: str, got: Any, want: str, fix: str) -> NoReturn:
    shown = repr(got)
    if len(shown) > 100:
        shown = f"{shown[:90]} ... ({type(got).__name__})"
    raise RequestError(where=where, got=Words(shown), want=want, fix=fix)
