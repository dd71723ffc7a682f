"""A value of a configuration together with the place it was written."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

OriginKind = Literal["default", "file", "set", "plugin", "derived"]


@frozen
class Origin:
    """Where a value came from: the kind of place, and the place itself."""

    kind: OriginKind
    detail: str = ""
    """``model.yaml:12``, ``--set engine.max_rows``, a distribution, or how it was worked out."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind

    def where(self, path: str) -> str:
        """``model.yaml:12 engine.max_rows``: how an error names this place."""
        if self.kind == "set":
            return f"--set {path}" if path else self.detail
        return f"{self.detail} {path}".strip()


DEFAULT = Origin("default")


@frozen
class Located:
    """One YAML value: a scalar, a list of Located, or a mapping of str to Located.

    ``text`` is a scalar as it was written, so that ``--set model.revision=12`` can be read as the
    text that the schema asks for.
    """

    value: Any
    origin: Origin = DEFAULT
    text: str | None = field(default=None, eq=False)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    def plain(self) -> Any:
        """The value without places: what ``yaml.safe_load`` would give."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value
