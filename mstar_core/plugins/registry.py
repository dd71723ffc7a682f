"""Who brings which name: models, kinds of resources, backends of operations.

An offer is a lazy reference (``"package.module:Name"``): nothing is imported until somebody asks
for it with ``resolve``. A name has one owner. A plugin registers into a *draft* of each registry,
which is adopted whole or not at all.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, ClassVar, Generic, Self, TypeVar

from attrs import define, field, frozen

from mstar_core.errors import ConfigError, PluginError, Words
from mstar_core.names import suggest

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


@frozen(kw_only=True)
class Offer:
    """One name that somebody brings."""

    owner: str
    """Distribution and version."""
    ref: str
    """``package.module:Name``."""

    def load(self) -> Any:
        """Import what is offered. Raises PluginError, naming the owner, if it is not there."""
        module, _, name = self.ref.partition(":")
        try:
            return getattr(import_module(module), name)
        except Exception as error:
            raise PluginError(
                where=f"{self.owner}: {self.ref}",
                got=Words(f"{type(error).__name__}: {error}"),
                want="an importable name",
                fix=f"reinstall {self.owner.split()[0]}, or report it to its authors",
            ) from error


@frozen(kw_only=True)
class BackendOffer(Offer):
    """One implementation of an operation."""

    operation: str
    name: str
    priority: int
    """Of those that apply the highest is taken; equal ones by name."""
    hardware: tuple[str, ...]
    """Where it can run (``cpu``, ``cuda>=9.0``, ``rocm``); empty: anywhere."""
    basis: str = ""
    """What its priority rests on, for people: what was measured, and where."""

    @property
    def rank(self) -> str:
        """Its priority, with what that rests on."""
        return f"priority {self.priority}{f', {self.basis}' if self.basis else ''}"


Entry = TypeVar("Entry", bound=Offer)
Key = TypeVar("Key")


@define(kw_only=True, eq=False)
class _Registry(Generic[Key, Entry]):
    """Names with one owner each."""

    what: ClassVar[str]
    owner: str
    """Who is adding to this registry now."""
    taken: dict[Key, Entry] = field(factory=dict)
    """What was adopted before, seen only to detect a clash."""
    entries: dict[Key, Entry] = field(factory=dict)

    def draft(self, owner: str) -> Self:
        """An empty registry in which ``owner`` registers; it refuses names that are taken here."""
        return type(self)(owner=owner, taken=self.entries)

    def adopt(self, draft: Self) -> None:
        """Keep everything that was registered in ``draft``."""
        self.entries.update(draft.entries)

    def _claim(self, key: Key, entry: Entry) -> None:
        if not (isinstance(entry.ref, str) and REFERENCE.fullmatch(entry.ref)):
            where = f"{self.owner}: {self.what} {self._spell(key)}"
            fix = "name the class by text, so that nothing is imported before it is used"
            raise PluginError(where=where, got=entry.ref, want="package.module:Name", fix=fix)
        rival = self.entries.get(key) or self.taken.get(key)
        if rival is not None:
            raise PluginError(
                where=f"{self.what} {self._spell(key)}",
                got=Words(f"claimed by {rival.owner} and by {self.owner}"),
                want="one owner per name",
                fix="disable one of the two by its distribution's name",
            )
        self.entries[key] = entry

    def _find(self, key: Key) -> Entry:
        if key not in self.entries:
            known = [self._spell(each) for each in self.entries]
            raise ConfigError(
                where=self.what,
                got=self._spell(key),
                want=f"one of: {', '.join(sorted(known))}",
                fix=suggest(self._spell(key), known) + " (mstar-core list-plugins shows all)",
            )
        return self.entries[key]

    @staticmethod
    def _spell(key: Any) -> str:
        return ".".join(key) if isinstance(key, tuple) else str(key)


class ModelRegistry(_Registry[str, Offer]):
    """Models by name."""

    what = "model"

    def add(self, name: str, ref: str) -> None:
        """Offer the model ``name``. PluginError if claimed or ``ref`` is none."""
        self._claim(name, Offer(owner=self.owner, ref=ref))

    def resolve(self, name: str) -> Any:
        """Import the model's class. Raises ConfigError, with the nearest name, if unknown."""
        return self._find(name).load()


class ResourceRegistry(_Registry[str, Offer]):
    """Resource classes by kind."""

    what = "resource"

    def add(self, kind: str, ref: str) -> None:
        """Offer the resource ``kind``. Raises PluginError if claimed or ``ref`` is no reference."""
        self._claim(kind, Offer(owner=self.owner, ref=ref))

    def resolve(self, kind: str) -> Any:
        """Import the resource's class. Raises ConfigError, with the nearest kind, if unknown."""
        return self._find(kind).load()


class BackendRegistry(_Registry[tuple[str, str], BackendOffer]):
    """Implementations by operation and name."""

    what = "backend"

    def add(
        self,
        operation: str,
        name: str,
        ref: str,
        *,
        priority: int = 0,
        hardware: tuple[str, ...] = (),
        basis: str = "",
    ) -> None:
        """Offer ``name`` for ``operation``. Raises PluginError if claimed or no reference."""
        offer = BackendOffer(
            owner=self.owner,
            ref=ref,
            operation=operation,
            name=name,
            priority=priority,
            hardware=hardware,
            basis=basis,
        )
        self._claim((operation, name), offer)

    def resolve(self, operation: str, name: str) -> Any:
        """Import the backend. Raises ConfigError, with the nearest one, if unknown."""
        return self._find((operation, name)).load()

    def candidates(self, operation: str) -> tuple[BackendOffer, ...]:
        """All that implement ``operation``: highest priority first, then by name."""
        found = (offer for offer in self.entries.values() if offer.operation == operation)
        return tuple(sorted(found, key=lambda offer: (-offer.priority, offer.name)))

    def operations(self) -> tuple[str, ...]:
        """Every operation that something implements, sorted."""
        return tuple(sorted({offer.operation for offer in self.entries.values()}))
