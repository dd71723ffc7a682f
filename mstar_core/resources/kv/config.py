"""What a paged KV pool is made of, and what a deployment can set of it."""

from __future__ import annotations

from typing import Any

from attrs import Attribute, field, frozen
from attrs.validators import optional

from mstar_core.config.checks import whole
from mstar_core.errors import ConfigError


def _power_of_two(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    if type(value) is int and 8 <= value <= 256 and value & (value - 1) == 0:
        return
    raise ConfigError(
        where=attribute.name,
        got=value,
        want="a power of two from 8 to 256 (tokens per page)",
        fix="write for example 64",
    )


@frozen(kw_only=True)
class KVOptions:
    """The geometry of a pool, as a model declares it."""

    num_layers: int = field(validator=whole(1))
    num_kv_heads: int = field(validator=whole(1))
    head_dim: int = field(validator=whole(1))
    max_tokens: int | None = field(default=None, validator=optional(whole(1)))
    """The longest stream in tokens; None is the engine's ``max_context``."""


@frozen(kw_only=True)
class KVConfig:
    """How much KV memory a deployment keeps, and how finely it is cut."""

    page_tokens: int = field(default=64, validator=_power_of_two)
    """Tokens per page."""
    num_pages: int | None = field(default=None, validator=optional(whole(1, unit="pages")))
    """Pages for requests; None is what the admitted requests can use and the memory holds."""
