"""Typed reading of a checkpoint's JSON: every field that cannot be used is named with its file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from mstar_core.errors import CheckpointError, Words

_REQUIRED = object()


@frozen
class JsonFields:
    """One JSON object of a file; ``path`` is where it sits (``text_config.rope_parameters``)."""

    file: Path
    values: Mapping[str, Any]
    path: str = ""

    @classmethod
    def read(cls, file: Path) -> JsonFields:
        """The object that ``file`` holds. Raises CheckpointError where it holds none."""
        want, fix = "a JSON object", "fetch the checkpoint again"
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(
                where=str(file),
                got=Words("no such file"),
                want="a checkpoint folder with its config.json",
                fix="point model.path at the folder that holds config.json",
            ) from None
        except (OSError, ValueError) as error:
            raise CheckpointError(where=str(file), got=Words(error), want=want, fix=fix) from error
        if not isinstance(values, dict):
            raise CheckpointError(where=str(file), got=values, want=want, fix=fix)
        return cls(file, values)

    def wrong(self, name: str, got: object, want: str, fix: str = "correct it") -> CheckpointError:
        """The error for one field of this object."""
        where = f"{self.file}: {self.path}.{name}" if self.path else f"{self.file}: {name}"
        return CheckpointError(where=where, got=got, want=want, fix=fix)

    def has(self, name: str) -> bool:
        """Whether the field is given and not null."""
        return self.values.get(name) is not None

    def section(self, name: str) -> JsonFields:
        """The object under ``name``."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return JsonFields(self.file, value, f"{self.path}.{name}" if self.path else name)

    def whole(
        self, name: str, default: Any = _REQUIRED, least: int = 1, most: int | None = None
    ) -> int:
        """A whole number of at least ``least``, and at most ``most``."""
        want = f"a whole number of at least {least}"
        want += "" if most is None else f" and at most {most}"
        value = self._value(name, default, want)
        if type(value) is not int or value < least or (most is not None and value > most):
            raise self.wrong(name, value, want)
        return value

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        """A finite number above 0."""
        value = self._value(name, default, "a finite number above 0")
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self.wrong(name, value, "a finite number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self._value(name, default, "true or false")
        if type(value) is not bool:
            raise self.wrong(name, value, "true or false")
        return value

    def word(self, name: str, default: str) -> str:
        """A piece of text."""
        value = self._value(name, default, "text")
        if not isinstance(value, str):
            raise self.wrong(name, value, "text")
        return value

    def wholes(self, name: str) -> tuple[int, ...]:
        """One whole number or a list of them, each at least 0; empty where it is null or absent."""
        value = self.values.get(name)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if any(type(one) is not int or one < 0 for one in listed):
            raise self.wrong(name, value, "a whole number, or a list of them, each at least 0")
        return tuple(listed)

    def sizes(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, each at least 1."""
        value = self.values.get(name)
        if not isinstance(value, list) or any(type(n) is not int or n < 1 for n in value):
            raise self.wrong(name, value, "a list of whole numbers, each at least 1")
        return tuple(value)

    def ids_by_name(self, name: str, below: int) -> dict[str, int]:
        """Names to ids from 0 to ``below - 1``."""
        value = self.values.get(name)
        want = f"names mapped to whole numbers from 0 to {below - 1}"
        if not isinstance(value, dict):
            raise self.wrong(name, value, want)
        for key, each in value.items():
            if type(each) is not int or not 0 <= each < below:
                raise self.wrong(f"{name}.{key}", each, want)
        return dict(value)

    def must_be(self, name: str, expected: Any, default: Any) -> None:
        """Refuse every value of the field but ``expected``."""
        value = self.values.get(name, default)
        if type(value) is not type(expected) or value != expected:
            raise self.wrong(
                name, value, repr(expected), "use a checkpoint of the published architecture"
            )

    def _value(self, name: str, default: Any, want: str) -> Any:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.wrong(
                name, Words("nothing"), want, "use the config.json that came with the weights"
            )
        return default
