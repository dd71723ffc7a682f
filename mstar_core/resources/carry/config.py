"""What the carry rows of a node hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class CarryOptions:
    """The tensors of one row: a node's looped inputs."""

    tensors: Mapping[str, tuple[tuple[int, ...], Any, float]] = field(factory=dict)
    """Name → (shape of one item, torch dtype or its name, also ``"model"``, first value)."""


@frozen(kw_only=True)
class CarryConfig:
    """A deployment sets nothing of carry: a row per admitted request."""
