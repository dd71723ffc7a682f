"""Plans: what one step may read, as tensors and ints, nothing else.

A resource returns a plan whose arrays are numpy arrays on the host. The engine lays all of a
step's arrays into one pinned block, copies it once, and hands the forward the same plan with
tensors in their place (:func:`stage_plan`). Fields that already hold a tensor (a pool, a carry
row) pass through. Ints are bounds: with a lease they are the bucket's, never the step's, so an int
that changes is another bucket.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from attrs import frozen

if typing.TYPE_CHECKING:
    from torch import Tensor

Staged = Any
"""A numpy array as a resource returns it; a tensor of the same shape and dtype in a forward."""

_ALLOWED = {"Staged", "Tensor", "int"}


@frozen(kw_only=True, eq=False)
class Plan:
    """Base of every plan. Subclasses are made with :func:`plan_class`."""

    def resident_lacks(self) -> frozenset[str]:
        """Fields that a resident step of this plan's ints leaves out, as nothing reads them."""
        return frozenset()


T = typing.TypeVar("T")


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def plan_class(cls: type[T]) -> type[T]:
    """Class decorator: a frozen plan whose fields are ``Staged``, ``Tensor`` or ``int``.

    Raises ``TypeError`` when the class is defined with any other field.
    """
    for name, kind in cls.__annotations__.items():
        word = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
        if not set(word.replace(" ", "").split("|")) <= _ALLOWED | {"None"}:
            where = f"{cls.__name__}.{name}"
            raise TypeError(f"{where}: a plan holds Staged, Tensor or int, not {word}")
    return frozen(kw_only=True, eq=False)(cls)


def staged_arrays(plan: Plan) -> dict[str, np.ndarray]:
    """The host arrays of ``plan`` that must travel, by field name."""
    found = [(each.name, getattr(plan, each.name)) for each in plan.__attrs_attrs__]
    return {name: value for name, value in found if isinstance(value, np.ndarray)}


def stage_plan(plan: Plan, tensors: Mapping[str, Tensor]) -> Plan:
    """``plan`` with its host arrays replaced by ``tensors`` of the same names."""
    return attrs.evolve(plan, **tensors)
