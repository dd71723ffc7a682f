"""What a recurrent state is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

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
    """A deployment sets nothing of a state: a slot per admitted request."""
