"""How a node counts and encodes positions."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from mstar_core.config.checks import flag, number, one_of, whole
from mstar_core.errors import ConfigError


@frozen(kw_only=True)
class PositionOptions:
    """The encoding, as a model declares it."""

    kind: Literal["rope", "mrope", "learned"] = field(
        default="rope", validator=one_of("rope", "mrope", "learned")
    )
    """``learned``: the model looks ``index_T`` up in a table of its own."""
    rotary_dim: int = field(default=0, validator=whole(0))
    """Features of a head that are rotated; even."""
    theta: float = field(default=10000.0, validator=number(0, above=True))
    sections: tuple[int, ...] = (11, 11, 10)
    """mrope: frequencies of the time, height and width axes; they add up to ``rotary_dim / 2``."""
    interleaved: bool = field(default=True, validator=flag)
    """mrope: the axes take turns (t h w t h w … t t); else they lie one behind the other."""

    def __attrs_post_init__(self) -> None:
        if self.kind == "learned":
            return
        if self.rotary_dim < 2 or self.rotary_dim % 2:
            raise ConfigError(
                where="rotary_dim",
                got=self.rotary_dim,
                want="an even number of at least 2",
                fix="give the number of rotated features of a head",
            )
        if self.kind == "mrope" and sum(self.sections) * 2 != self.rotary_dim:
            raise ConfigError(
                where="sections",
                got=self.sections,
                want=f"three numbers that add up to {self.rotary_dim // 2}",
                fix="give the frequencies of the time, height and width axes",
            )


@frozen(kw_only=True)
class PositionConfig:
    """A deployment sets nothing of positions."""
