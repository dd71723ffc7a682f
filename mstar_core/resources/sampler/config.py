"""What a sampler chooses from, and what a deployment can set of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import whole
from mstar_core.config.sampling import MAX_LOGPROBS

if TYPE_CHECKING:
    from mstar_core.resources.sampler.rules import LogitRule


@frozen(kw_only=True)
class SamplerOptions:
    """The vocabulary and the rules over it, as a model declares them."""

    vocab_size: int = field(validator=whole(1))
    """Columns of the logits."""
    valid_vocab: int | None = field(default=None, validator=optional(whole(1)))
    """Ids from here on are never sampled; None: all may be."""
    rules: tuple[LogitRule, ...] = ()
    """Applied to the logits in this order, before bias and penalties."""


@frozen(kw_only=True)
class SamplerConfig:
    """How much a deployment keeps for requests with penalties or a bias."""

    penalty_rows: int = field(default=8, validator=whole(0, 4096, "requests"))
    """Requests with penalties or a logit bias that are served at once."""
    max_top_logprobs: int = field(default=MAX_LOGPROBS, validator=whole(0, MAX_LOGPROBS, "tokens"))
    """The most likely tokens that a request may ask for with each token."""
