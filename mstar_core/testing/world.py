"""A small world to build resources in without an engine: builders, steps, snapshots."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import attrs
import numpy as np
import torch
from attrs import define, field

from mstar_core.config.sampling import SamplingSettings
from mstar_core.fixed import FixedBuffers
from mstar_core.ops.backend import BindRequest
from mstar_core.resources.base import BuildEnv, Opening, Resource, ResourceSpec
from mstar_core.resources.carry import CarryStep
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable
from mstar_core.step import Bucket, Lease, Plan, ResourceStep, staged_arrays

Spans = int | Sequence[int]


def step_of(
    *handles: int, spans: Spans = 1, key: str = "main", split: bool = False
) -> ResourceStep:
    """The declaration of rows ``handles``, each adding its span."""
    spans_B = _spread(spans, len(handles))
    return ResourceStep(key=key, handles_B=_whole(handles), spans_B=spans_B, split=split)


def carry_step_of(
    *handles: int,
    spans: Spans = 1,
    carry: bool | Sequence[bool] = False,
    samples: bool | Sequence[bool] = True,
    key: str = "carry",
) -> CarryStep:
    """The declaration for ``carry`` and ``sampler``."""
    n = len(handles)
    return CarryStep(
        key=key,
        handles_B=_whole(handles),
        spans_B=_spread(spans, n),
        carry_B=np.broadcast_to(np.asarray(carry, dtype=np.bool_), (n,)).copy(),
        samples_B=np.broadcast_to(np.asarray(samples, dtype=np.bool_), (n,)).copy(),
    )


def decode_lease(rows: int, variant: int = 0) -> Lease:
    """A lease of a decode bucket."""
    return Lease(
        bucket=Bucket(walk="decode", rows=rows, tokens=rows, kind="decode", variant=variant)
    )


def prefill_lease(rows: int, tokens: int, variant: int = 0) -> Lease:
    """A lease of a bucket of packed rows."""
    return Lease(
        bucket=Bucket(walk="prefill", rows=rows, tokens=tokens, kind="prefill", variant=variant)
    )


def mixed_lease(rows: int, tokens: int, lead: int, variant: int = 0) -> Lease:
    """A lease of a bucket that runs up to ``lead`` leading one-token rows apart."""
    bucket = Bucket(
        walk="mixed", rows=rows, tokens=tokens, kind="mixed", variant=variant, lead=lead
    )
    return Lease(bucket=bucket)


def opening_of(
    tokens: int | Mapping[str, int] = 16,
    keys: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    prompt_ids: Sequence[int] | None = None,
) -> Opening:
    """A request that may add ``tokens`` to each of ``keys``."""
    per_key = tokens if isinstance(tokens, Mapping) else dict.fromkeys(keys, tokens)
    return Opening(
        tokens=per_key,
        settings=settings or {"sampler": SamplingSettings()},
        prompt_ids=None if prompt_ids is None else _whole(prompt_ids),
    )


def bind_torch(operation: str, geometry: Mapping[str, Any]) -> Any:
    """The core's torch implementation of ``operation``, fp32 on the CPU."""
    backend = import_module(f"mstar_core.ops.{operation}.torch_backend").BACKEND
    request = BindRequest(operation=operation, device="cpu", dtype=torch.float32, geometry=geometry)
    return backend.bind(request)


@define(kw_only=True, eq=False)
class World:
    """One node on the CPU without an engine: what resources are built in, and their life cycle."""

    max_rows: int = 4
    token_budget: int = 64
    max_context: int = 64
    num_handles: int = 16
    bind: Callable[[str, Any], Any] = bind_torch
    memory_bytes: int | None = None
    resources: dict[str, Resource] = field(factory=dict)
    table: RequestTable = field()
    fences: Fences = field(factory=Fences)
    buffers: FixedBuffers = field(factory=lambda: FixedBuffers(torch.device("cpu")))
    launched: int = 0
    """Entries launched; the number of the next."""

    @table.default
    def _table(self) -> RequestTable:
        return RequestTable(self.num_handles)

    def env(self, config: Mapping[str, Any] | None = None) -> BuildEnv:
        """What a resource is built with."""
        return BuildEnv(
            node="node",
            device=torch.device("cpu"),
            dtype=torch.float32,
            buffers=self.buffers,
            table=self.table,
            fences=self.fences,
            max_rows=self.max_rows,
            token_budget=self.token_budget,
            max_context=self.max_context,
            config=config or {},
            built=self.resources,
            bind=self.bind,
            memory_bytes=self.memory_bytes,
        )

    def build(
        self,
        cls: type[Resource],
        key: str,
        options: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        depends_on: Mapping[str, str] | None = None,
    ) -> Any:
        """Build a resource under ``key``, after those it depends on."""
        spec = ResourceSpec(
            key=key, kind=cls.kind, options=options or {}, depends_on=depends_on or {}
        )
        self.resources[key] = cls.build(spec, self.env(config))
        return self.resources[key]

    def open(self, opening: Opening | None = None) -> int:
        """Admit a request into every resource."""
        wanted = opening or opening_of(keys=tuple(self.resources))
        handle = self.table.open()
        for resource in self.resources.values():
            resource.open(handle, wanted)
        return handle

    def close(self, handle: int, fence: int | None = None) -> None:
        """End a request everywhere; ``fence`` defaults to the newest entry."""
        last = self.launched - 1 if fence is None else fence
        for resource in self.resources.values():
            resource.close(handle, last)
        self.table.close(handle)
        self.table.recycle(handle)

    def plan(
        self, steps: Mapping[str, ResourceStep], lease: Lease | None = None
    ) -> dict[str, Plan]:
        """The plans of one step, in the order the resources were built."""
        plans: dict[str, Plan] = {}
        for key, resource in self.resources.items():
            if key in steps:
                plans[key] = resource.plan(steps[key], lease, plans)
        return plans

    def run(self, steps: Mapping[str, ResourceStep], lease: Lease | None = None) -> dict[str, Plan]:
        """Take, plan and commit one step; returns its plans as a forward would get them."""
        for key, step in steps.items():
            self.resources[key].take(step)
        plans = {key: staged(plan) for key, plan in self.plan(steps, lease).items()}
        for key, step in steps.items():
            self.resources[key].commit(step)
        self.launched += 1
        return plans

    def retire(self) -> None:
        """Every launched entry has been read."""
        self.fences.retire(self.launched - 1)


def staged(plan: Plan) -> Any:
    """``plan`` with tensors in place of host arrays."""
    arrays = {name: torch.from_numpy(a.copy()) for name, a in staged_arrays(plan).items()}
    return attrs.evolve(plan, **arrays)


def snapshot(resource: Resource, world: World) -> Any:
    """All host state that an act of ``resource`` could change, for comparison."""
    own = (
        {
            a.name: _host_state(getattr(resource, a.name))
            for a in attrs.fields(cast(Any, type(resource)))
        }
        if attrs.has(type(resource))
        else _host_state(vars(resource))
    )
    columns = [values.copy() for values, _ in world.table._columns]
    return own, columns


def _host_state(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Resource | Fences | RequestTable) or inspect.isroutine(value):
        return None
    if isinstance(value, Mapping):
        return {k: _host_state(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_host_state(v) for v in value]
    if attrs.has(type(value)):
        return {a.name: _host_state(getattr(value, a.name)) for a in attrs.fields(type(value))}
    if hasattr(value, "__dict__"):
        return {k: _host_state(v) for k, v in vars(value).items()}
    return copy.copy(value)


def same(left: Any, right: Any) -> bool:
    """Whether two snapshots or plans hold equal values (NaN equals NaN)."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return same(left.numpy(), right.numpy())
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        if left.dtype == object:
            return all(same(a, b) for a, b in zip(left.ravel(), right.ravel(), strict=True))
        return bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _whole(values: Sequence[int]) -> np.ndarray:
    return np.asarray(values, dtype=np.int64)


def _spread(spans: Spans, rows: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(spans, dtype=np.int64), (rows,)).copy()
