"""A row of ``list-plugins``: one plugin, its state, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import asdict, frozen

from mstar_core.errors import Refusal
from mstar_core.plugins.manifest import Manifest, Offers

State = Literal[
    "ready",
    "disabled",
    "not allowed",
    "shadowed",
    "renamed",
    "broken",
    "incompatible",
    "no hardware",
]
WRONG: tuple[State, ...] = ("broken", "shadowed", "incompatible")
"""States that nobody chose and no machine explains."""
Origin = Literal["editable", "wheel", "path"]


@frozen(kw_only=True)
class PluginRecord:
    """One entry point of one installed distribution. Nothing of it has been imported."""

    name: str
    """The entry point's name: what a person calls the plugin."""
    distribution: str
    version: str
    origin: Origin
    """How it came here: an editable checkout, a wheel, or merely on the path."""
    module: str
    """The light module with its hooks."""
    requires: tuple[str, ...] = ()
    """Its ``Requires-Dist`` lines."""
    manifest: Manifest | None = None
    state: State = "ready"
    refusal: Refusal | None = None
    """Why it is not ready."""
    hooks: tuple[str, ...] = ()
    """The hooks it implements; known once it was loaded or probed."""
    notes: tuple[str, ...] = ()
    """What a probe noticed and is not wrong enough to refuse it."""

    @property
    def offers(self) -> Offers:
        """What it brings, or nothing where its manifest could not be read."""
        return self.manifest.offers if self.manifest else Offers()

    @property
    def configs(self) -> tuple[Path, ...]:
        """The configuration files it ships, sorted by name."""
        return self.manifest.config_files() if self.manifest else ()

    @property
    def title(self) -> str:
        """Its manifest's title, or an empty string."""
        return self.manifest.title if self.manifest else ""

    @property
    def release(self) -> str:
        """``distribution version``, as a message names it."""
        return f"{self.distribution} {self.version}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "origin": self.origin,
            "module": self.module,
            "title": self.title,
            "api": self.manifest.api if self.manifest else None,
            "state": self.state,
            "offers": asdict(self.offers),
            "configs": [file.stem for file in self.configs],
            "hooks": list(self.hooks),
            "why": self.refusal.as_dict() if self.refusal else None,
            "not_run_on": list(self.manifest.not_run_on) if self.manifest else [],
            "notes": list(self.notes),
        }


def shipped_configs(records: Sequence[PluginRecord]) -> tuple[Path, ...]:
    """The configuration files that plugins ship.

    Of one that is broken, shadowed or incompatible too, where no ready one has that name: whoever
    loads its model is told why.
    """
    ready = tuple(f for record in records if record.state == "ready" for f in record.configs)
    others = {f.name: f for record in records if record.state in WRONG for f in record.configs}
    names = {file.name for file in ready}
    return (*ready, *(file for name, file in others.items() if name not in names))
