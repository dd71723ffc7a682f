"""Positions: a counter per request, and the angles that rotate queries and keys.

::

    request of 5 tokens, offset -2      index     0  1  2  3  4  | 5   next step
                                        position -2 -1  0  1  2  | 3

The offset is what an image prompt leaves behind (its tokens take fewer positions than places).
A text token has the same position on the time, height and width axes, so that plain rope and
mrope agree on text; :meth:`PositionResource.rope3` takes the three axes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from attrs import define
from torch import Tensor

from mstar_core.errors import Refusal, RequestError
from mstar_core.resources.base import BuildEnv, Opening, Resource, ResourceSpec
from mstar_core.resources.packing import positions
from mstar_core.resources.position.config import PositionConfig, PositionOptions
from mstar_core.resources.position.plan import PositionPlan
from mstar_core.resources.position.turning import turning_for
from mstar_core.resources.resident import Column, ResidentRows
from mstar_core.resources.settings import read_settings
from mstar_core.step import Lease, Plan, ResourceStep


@define(kw_only=True, eq=False)
class PositionResource(Resource):
    """Positions of one node's stream. ``opening.settings["position"]["offset"]``: an int."""

    kind: ClassVar[str] = "position"
    request_settings: ClassVar[tuple[str, ...]] = ("position",)
    Options: ClassVar[type] = PositionOptions
    Config: ClassVar[type] = PositionConfig
    resident_adds: ClassVar[tuple[int, ...]] = (1,)

    key: str
    options: PositionOptions
    length: np.ndarray
    """int64 per request: tokens so far, steps in flight included."""
    offset: np.ndarray
    """int64 per request."""
    frequency_R: Tensor
    """float32 ``[rotary_dim]``, radians per position, in two equal halves."""
    axis_R: Tensor
    """int64 ``[rotary_dim]``: which axis turns the frequency (0 time, 1 height, 2 width)."""

    @classmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> PositionResource:
        options = read_settings(PositionOptions, spec.options, f"resource {spec.key}.options")
        read_settings(PositionConfig, env.config, f"resources.{spec.key}")
        half = options.rotary_dim // 2
        frequency_R = env.claim(spec.key, "frequency", (2 * half,), torch.float32)
        axis_R = env.claim(spec.key, "axis", (2 * half,), torch.int64)
        if half:
            even = torch.arange(0, options.rotary_dim, 2, dtype=torch.int64).float()
            frequency_R.copy_((1.0 / options.theta ** (even / options.rotary_dim)).repeat(2))
            axis_R.copy_(torch.from_numpy(axes(options)).repeat(2))
        return cls(
            key=spec.key,
            options=options,
            length=env.table.column(np.int64),
            offset=env.table.column(np.int64),
            frequency_R=frequency_R,
            axis_R=axis_R,
        )

    def rope(self, plan: PositionPlan) -> tuple[Tensor, Tensor]:
        """``cos_TR, sin_TR`` float32 of each token's position; features i and i + R/2 share one."""
        turn = turning_for(self.frequency_R.device)
        return turn(plan.index_T, plan.offset_T, self.frequency_R)

    def rope3(self, positions_3T: Tensor) -> tuple[Tensor, Tensor]:
        """``cos_TR, sin_TR`` of explicit time, height and width positions (int64 ``[3, T]``)."""
        angle_TR = positions_3T[self.axis_R].T * self.frequency_R
        return angle_TR.cos(), angle_TR.sin()

    def check(self, opening: Opening) -> None:
        given = opening.settings.get("position", {})
        if not isinstance(given, Mapping) or set(given) - {"offset"}:
            raise RequestError(
                where="settings.position",
                got=given,
                want="a mapping with nothing but an offset",
                fix="write for example {'offset': -4}, or leave it out",
            )
        offset = given.get("offset", 0)
        if type(offset) is not int:
            raise RequestError(
                where="position.offset",
                got=offset,
                want="a whole number (positions)",
                fix="send what the prompt's images leave behind, or nothing",
            )

    def open(self, handle: int, opening: Opening) -> None:
        self.offset[handle] = opening.settings.get("position", {}).get("offset", 0)

    def plan(
        self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]
    ) -> PositionPlan:
        at_T = positions(self.length[step.handles_B], step.spans_B)
        num_tokens = step.num_tokens if lease is None else lease.bucket.tokens
        both_2T = np.zeros((2, num_tokens), dtype=np.int64)
        both_2T[0, : len(at_T)] = at_T
        both_2T[1, : len(at_T)] = np.repeat(self.offset[step.handles_B], step.spans_B)
        return PositionPlan(index_T=both_2T[0], offset_T=both_2T[1])

    def reuse_refusal(self) -> Refusal | None:
        return None

    def start_at(self, handle: int, length: int) -> None:
        self.length[handle] = length

    def resident_refusal(self, walk: str) -> Refusal | None:
        return None

    def resident_columns(self) -> tuple[Column, ...]:
        return (
            Column(name="length", host=self.length, advances=True),
            Column(name="offset", host=self.offset),
        )

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> PositionPlan:
        return PositionPlan(index_T=cells["length"], offset_T=cells["offset"])

    def commit(self, step: ResourceStep) -> None:
        self.length[step.handles_B] += step.spans_B

    def close(self, handle: int, fence: int) -> None:
        self.length[handle] = self.offset[handle] = 0


def axes(options: PositionOptions) -> np.ndarray:
    """int64 ``[rotary_dim / 2]``: the axis of each frequency."""
    axis_r = np.zeros(options.rotary_dim // 2, dtype=np.int64)
    if options.kind != "mrope":
        return axis_r
    if not options.interleaved:
        return np.repeat(np.arange(len(options.sections)), options.sections)
    for axis in (1, 2):
        axis_r[axis : options.sections[axis] * 3 : 3] = axis
    return axis_r
