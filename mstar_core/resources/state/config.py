"""What a recurrent state is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import whole


@frozen(kw_only=True)
class StateOptions:
    """The blocks of one layer's state, as a model declares them."""

    num_layers: int = field(validator=whole(1))
    blocks: Mapping[str, tuple[tuple[int, ...], Any]]
    """Name → (shape of one slot, torch dtype or its name, also ``"model"``)."""
    layout: str = ""
    """The tag of the backend that can read the blocks; empty leaves it to the one that is bound."""


@frozen(kw_only=True)
class StateConfig:
    """How much memory a deployment keeps for snapshots; of states, a slot per admitted request."""

    snapshot_every: int = field(default=512, validator=whole(1, unit="tokens"))
    """Tokens between two snapshots of a stream, a multiple of the page size: a prompt that begins
    like another is taken over up to such a boundary."""
    snapshots: int | None = field(default=None, validator=optional(whole(0, unit="snapshots")))
    """States kept for prompts that begin alike; null is as many as requests run; 0 keeps none."""
