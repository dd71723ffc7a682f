"""Everything that is wrong with a configuration, told in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define

from mstar_core.errors import ConfigError, Words


@define(kw_only=True, eq=False)
class ConfigErrors(ConfigError):
    """Several settings that cannot be used; ``errors`` holds each with its own four facts."""

    errors: tuple[ConfigError, ...]

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def raise_all(errors: Sequence[ConfigError], where: str) -> None:
    """Raise nothing for no error, the error itself for one, ConfigErrors for several."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ConfigErrors(
            where=where,
            got=Words(f"{len(errors)} settings that cannot be used"),
            want="a configuration in which each setting can be used",
            fix="mend each of them; all are listed",
            errors=tuple(errors),
        )


def list_words(words: Iterable[str]) -> str:
    """``a, b, c``, in the order given; ``nothing`` when there is none."""
    return ", ".join(words) or "nothing"
