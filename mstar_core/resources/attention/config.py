"""What an attention is made of."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import flag, number, whole


@frozen(kw_only=True)
class AttentionOptions:
    """The geometry of an attention, as a model declares it."""

    num_heads: int = field(validator=whole(1))
    num_kv_heads: int = field(validator=whole(1))
    head_dim: int = field(validator=whole(1))
    causal: bool = field(default=True, validator=flag)
    """A query reads up to its own position; else all that is readable."""
    scale: float | None = field(default=None, validator=optional(number(0, above=True)))
    """Factor on the scores; None is ``head_dim ** -0.5``."""


@frozen(kw_only=True)
class AttentionConfig:
    """A deployment sets nothing of an attention."""
