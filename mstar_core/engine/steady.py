"""A steady batch: the same rows in the same resident bucket, step after step.

Two steps of it differ only by "every length + 1" and "a row crossed into a new page". The device
does the first by itself; for the second the batch counts down, per resource and row, the tokens
that still fit. So a steady step asks nothing, plans nothing and sends nothing. When a row crosses,
the step takes for every row what its next ``AHEAD`` tokens need, or those to its end, and sends the
new cells; so such steps are rare, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from attrs import define, field

from mstar_core.engine.capture import Captured
from mstar_core.engine.device import Device
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.staging import Block, BlockLayout
from mstar_core.resources.base import Resource
from mstar_core.sched.scheduler import Row
from mstar_core.step import ResourceStep, Step

AHEAD = 160
"""Tokens that every row has room for once one had none: fewer than one step in a hundred takes."""


@define(eq=False)
class Countdown:
    """Tokens that each row can still add to one resource before it must take more."""

    resource: Resource
    part: ResourceStep
    left_B: np.ndarray
    steps_B: np.ndarray
    """Steps until each row reaches its own limit."""

    def crossing(self) -> np.ndarray:
        """The rows, by index, to take for now: none as long as the next token fits everywhere."""
        if self.left_B.min() > 0:
            return _NONE
        return np.flatnonzero(self.left_B < np.minimum(self.steps_B, AHEAD))

    def only(self, rows: np.ndarray) -> ResourceStep:
        """A part for these rows alone, of all the tokens that they should have room for."""
        part = self.part
        return ResourceStep(
            key=part.key,
            handles_B=part.handles_B[rows],
            spans_B=np.minimum(self.steps_B[rows], AHEAD),
            label=part.label,
        )

    def count(self) -> None:
        """One more step was launched."""
        self.left_B -= 1
        self.steps_B -= 1

    def took(self, rows: np.ndarray) -> None:
        """These rows have taken more."""
        self.left_B[rows] = self.resource.quiet_tokens(self.part.handles_B[rows])


@define(eq=False, kw_only=True)
class SteadyBatch:
    """Everything about the next step that does not change from step to step."""

    node: NodeRuntime
    step: Step
    rows: Sequence[Row]
    captured: Captured
    slots_B: np.ndarray
    advance_N: np.ndarray
    countdowns: tuple[Countdown, ...]
    left: int
    """Steps until some row reaches its limit."""
    launched: int = field(default=0, init=False)
    """Steps launched that the scheduler has not been told of."""
    last_number: int = field(default=-1, init=False)


_NONE = np.zeros(0, np.int64)


def countdowns_of(node: NodeRuntime, step: Step, steps_B: np.ndarray) -> tuple[Countdown, ...]:
    """One for each resource that the step adds to and that ever takes more.

    ``steps_B``: steps until each row reaches its own limit.
    """
    found = []
    for key, part in step.parts.items():
        resource = node.resources[key]
        left_B = resource.quiet_tokens(part.handles_B)
        if left_B is not None and part.spans_B.any():
            found.append(Countdown(resource, part, left_B, steps_B.copy()))
    return tuple(found)


class CellRing:
    """Page-locked blocks of one resident bucket: row numbers and cells, without a copy's layout.

    A block is written again ``depth`` entries later, as with every ring of the engine.
    """

    def __init__(self, device: Device, layout: BlockLayout, depth: int) -> None:
        self._device = device
        self._blocks = [device.pinned((layout.num_bytes,), torch.uint8) for _ in range(depth)]
        self._views = [
            {key[1]: block.array(place) for key, place in layout.places.items()}
            for block in map(Block, self._blocks)
        ]
        self._next = 0

    @property
    def num_cells(self) -> int:
        """Cells that one block has room for."""
        return len(self._views[0]["index_K"])

    def send(
        self, captured: Captured, slots_B: np.ndarray, index_K: np.ndarray, value_K: np.ndarray
    ) -> None:
        """Copy row numbers and cells into the bucket's block."""
        views, block = self._views[self._next], self._blocks[self._next]
        self._next = (self._next + 1) % len(self._blocks)
        count = len(index_K)
        views["slots_B"][: len(slots_B)] = slots_B
        views["slots_B"][len(slots_B) :] = 0
        views["count_1"][0] = count
        views["index_K"][:count] = index_K
        views["value_K"][:count] = value_K
        self._device.copy_in(block, captured.block.block)
        captured.received = slots_B
