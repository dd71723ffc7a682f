"""The contract of a resource: six verbs, asked before taken.

A request's life in a resource, left to right::

    check   open      room take plan commit   room take plan commit   ...   close
    (door)  (admission)  └── one step ──┘                                   (idempotent)

``check``, ``can_open`` and ``room`` change nothing anywhere. ``open``, ``take``, ``plan`` and
``commit`` cannot refuse. So a refused step has touched nothing, and nothing is ever rolled back.
Only ``engine/lifecycle.py`` calls ``room``, ``take``, ``plan`` and ``commit``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from attrs import define, field, frozen

from mstar_core.dtypes import torch_dtype_named
from mstar_core.errors import Refusal
from mstar_core.fixed import FixedBuffers
from mstar_core.resources.cost import RowCost
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable
from mstar_core.step import Bucket, CombinedSplit, Lease, Plan, ResourceStep, Shortage


@frozen(kw_only=True)
class ResourceSpec:
    """What a model declares about one resource of one node."""

    key: str
    """The name within the node: ``kv``, ``cross_kv``, ``attention``."""
    kind: str
    """The registered kind: ``kv``, ``attention``, ``position``, ``state`` …"""
    options: Mapping[str, Any] = field(factory=dict)
    """Geometry, as the resource's own ``Options`` class takes it (layers, heads, head_dim …)."""
    depends_on: Mapping[str, str] = field(factory=dict)
    """Role → key of another resource of the node, for example ``{"kv": "cross_kv"}``."""


@define(kw_only=True, eq=False)
class BuildEnv:
    """All that a resource may use while it is built."""

    node: str
    device: torch.device
    dtype: torch.dtype
    """The model's compute dtype."""
    buffers: FixedBuffers
    table: RequestTable
    fences: Fences
    max_rows: int
    """Rows of a step, and requests admitted at once."""
    token_budget: int
    """Tokens of one step."""
    max_context: int
    """Tokens of the longest stream."""
    config: Mapping[str, Any]
    """The deployment's settings for this resource, for its ``Config`` class."""
    built: Mapping[str, Resource]
    """Resources of the node that are built already, by key."""
    bind: Callable[[str, Any], Any]
    """``bind(operation, request)``: the chosen backend's frozen record of callables."""
    splits: tuple[CombinedSplit, ...] = ()
    """The node's combined walks, each as a resource may run it: as two kernels."""
    memory_bytes: int | None = None
    """For a pool: the bytes it may take (None: as many as it can ever use)."""

    def claim(
        self, key: str, name: str, shape: tuple[int, ...], dtype: torch.dtype | str
    ) -> torch.Tensor:
        """A zeroed fixed buffer owned by ``node.key``; ``dtype`` may be a name, also ``model``."""
        kind = torch_dtype_named(dtype, self.dtype) if isinstance(dtype, str) else dtype
        return self.buffers.claim(f"{self.node}.{key}", name, shape, kind)


@frozen(kw_only=True, eq=False)
class Opening:
    """One request as it is admitted, in the numbers a resource needs."""

    tokens: Mapping[str, int]
    """Per resource key, the most tokens that the request can add over its life."""
    settings: Mapping[str, Any]
    """``Request.settings`` by name, and ``sampler`` → the request's ``SamplingSettings``."""
    prompt_ids: Any = None
    """int64 ``[prompt]`` on the host, or None where the prompt is not tokens."""
    first: Mapping[str, int] | None = None
    """Per resource key, the tokens whose memory is taken at admission: what is held for life and
    the first steps of its prompts. None: memory for all ``tokens`` is promised instead."""
    generated: int = 0
    """Tokens that the request was given before: it is admitted anew, behind prompt and tokens."""


class Resource(ABC):
    """Per-request state or per-step plan of one node, under one key."""

    kind: ClassVar[str]
    request_settings: ClassVar[tuple[str, ...]] = ()
    """The names in ``Request.settings`` that it reads, and checks in :meth:`check`; a request with
    a name that no resource reads is refused. ``Request.sampling`` needs none."""
    sized_by: ClassVar[tuple[str, ...]] = ("engine.max_rows",)
    """The settings that its memory grows with, for people who must lower one."""
    key: str

    @classmethod
    @abstractmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> Self:
        """Claim all device memory and bind kernels. Raises ConfigError on impossible settings."""

    @classmethod
    def pool_bytes(cls, spec: ResourceSpec, env: BuildEnv) -> int:
        """Bytes that the pool could use at most, where its size follows memory; else 0."""
        return 0

    def check(self, opening: Opening) -> None:
        """At the door, pure. Raises RequestError for a request that could never be served."""

    def can_open(self, opening: Opening) -> Shortage | None:
        """Before admission, pure: what is missing to hold the request to its end."""
        return None

    def open(self, handle: int, opening: Opening) -> None:
        """At admission: take what the request holds for life. Cannot refuse after ``can_open``."""

    def room(self, step: ResourceStep) -> Shortage | None:
        """Before a step, pure: what is missing to run it."""
        return None

    def take(self, step: ResourceStep) -> None:
        """Once every resource had room: take what the step adds. Cannot refuse."""

    @abstractmethod
    def plan(self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]) -> Plan:
        """What the forward may read. With a lease, padded to the bucket; ints are its bounds.

        ``upstream`` holds the plans (host arrays still) of the resources this one depends on, by
        key. A step of zero rows with a lease is the padding-only plan that fixes every shape.
        """

    def commit(self, step: ResourceStep) -> None:
        """When the step has been launched: advance the host's record of it."""

    def close(self, handle: int, fence: int) -> None:
        """The request is over; idempotent. What it held is free once entry ``fence`` is retired."""

    def quiet_tokens(self, handles_B: np.ndarray) -> np.ndarray | None:
        """How many tokens each of these requests can add before a step must take more (int64).

        None: never more. A resource that takes in steps and does not answer is asked in each.
        """
        if type(self).take is Resource.take and type(self).room is Resource.room:
            return None
        return np.zeros(len(handles_B), np.int64)

    def variant(self, step: ResourceStep) -> int:
        """Bits of ``Bucket.variant`` that these rows need."""
        return 0

    def variants(self) -> tuple[int, ...]:
        """Values of :meth:`variant` worth capturing."""
        return (0,)

    def all_variants(self) -> int:
        """Every bit that :meth:`variant` may set: the largest plan, for sizing."""
        return 0

    def combined_splits(self) -> tuple[CombinedSplit, ...]:
        """Which of ``env.splits`` this resource runs as two kernels. None by default."""
        return ()

    def capture_refusal(self, bucket: Bucket) -> Refusal | None:
        """Whether ``bucket`` cannot be captured; from the bucket and the configuration only."""
        return None

    def resident_refusal(self, walk: str) -> Refusal | None:
        """Why ``walk`` cannot run off device tables. The base refuses: no columns, no residence."""
        return Refusal(
            code="no-resident-columns",
            where=f"resource {self.key}, walk {walk}",
            got=f"a resource of kind {self.kind} without device columns",
            want="a resource that implements Resident",
            fix="nothing to do: the walk is planned on the host",
            owner=self.key,
        )

    def reuse_refusal(self) -> Refusal | None:
        """Why no request of this resource can begin with what another computed.

        The base refuses: a resource that cannot begin in the middle must not. One that keeps
        nothing of a stream, or only how long it is (:meth:`start_at`), returns None; one that keeps
        more implements :class:`~mstar_core.resources.shared.Shared`.
        """
        return Refusal(
            code="not-shared",
            where=f"resource {self.key}",
            got=f"a resource of kind {self.kind} that always begins with an empty stream",
            want="a resource that implements Shared",
            fix="nothing to do: every request computes its whole prompt",
            owner=self.key,
        )

    def start_at(self, handle: int, length: int) -> None:
        """At admission, behind ``open``: the request begins with ``length`` tokens of others."""

    def rebuilds(self, opening: Opening) -> bool:
        """Whether running prompt and tokens again leaves here what the request had before.

        Then a request may be given up under memory pressure and admitted anew. By default only
        what is held nowhere can be.
        """
        return not self.held()

    def row_cost(self, spans: Mapping[str, int], before: int) -> RowCost:
        """What no implementation of a step can spare for one of its rows here.

        ``spans``: by resource key, the tokens that the row adds; ``before``: those of its stream
        that are there already. Nothing by default.
        """
        return RowCost()

    def held(self) -> Mapping[str, tuple[int, int]]:
        """For conservation checks: unit → (free or cooling, total)."""
        return {}
