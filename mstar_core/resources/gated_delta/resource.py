"""Gated delta mixers over the slots of a state resource.

::

    tokens of a row  →  conv over the last taps  →  delta rule  →  gated norm  →  o
                          │ block "conv"              │ block "ssm"
                          └────── the row's slot ─────┘

It holds no state of its own: slots and freshness are the state's, rows and tokens are the step's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import asdict, define, evolve, frozen
from torch import Tensor

from mstar_core.errors import ConfigError, Refusal, Words
from mstar_core.ops.gated_delta import GatedDelta, GdnPools, GdnWeights
from mstar_core.resources.base import BuildEnv, Resource, ResourceSpec
from mstar_core.resources.cost import RowCost
from mstar_core.resources.gated_delta.config import GatedDeltaConfig, GatedDeltaOptions
from mstar_core.resources.gated_delta.plan import GatedDeltaPlan
from mstar_core.resources.packing import pack
from mstar_core.resources.resident import Column, ResidentRows
from mstar_core.resources.settings import read_settings
from mstar_core.resources.state import StatePlan, StateResource
from mstar_core.step import CombinedSplit, Lease, Plan, ResourceStep


@frozen(kw_only=True, eq=False)
class GatedDeltaLayer:
    """One layer's mixer: what a model's layer calls."""

    ops: GatedDelta
    pools: GdnPools
    """The layer's blocks, ``[S, *shape]``."""

    def step(
        self,
        qkv_TC: Tensor,
        z_TV: Tensor,
        b_TH: Tensor,
        a_TH: Tensor,
        weights: GdnWeights,
        plan: GatedDeltaPlan,
    ) -> Tensor:
        """Mixes each row's tokens, advances its slot in place → ``o_TV``."""
        return self.ops.step(qkv_TC, z_TV, b_TH, a_TH, weights, self.pools, plan)


@define(kw_only=True, eq=False)
class GatedDeltaResource(Resource):
    """The gated delta mixers of one node. A row's span is the tokens it absorbs."""

    kind: ClassVar[str] = "gated_delta"
    Options: ClassVar[type] = GatedDeltaOptions
    Config: ClassVar[type] = GatedDeltaConfig
    resident_adds: ClassVar[tuple[int, ...]] = (1,)

    key: str
    options: GatedDeltaOptions
    state: StateResource
    ops: GatedDelta
    splits: tuple[CombinedSplit, ...] = ()

    @classmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> GatedDeltaResource:
        options = read_settings(GatedDeltaOptions, spec.options, f"resource {spec.key}.options")
        read_settings(GatedDeltaConfig, env.config, f"resources.{spec.key}")
        ops = env.bind("gated_delta", asdict(options))
        role = spec.depends_on.get("state")
        state = env.built.get(role or "")
        want = _slot_shapes(options)
        if not isinstance(state, StateResource) or want != _shapes(state):
            raise ConfigError(
                where=f"resource {spec.key}.depends_on.state",
                got=Words(repr(role) if role else "nothing"),
                want=f"a state resource declared before it with blocks {want}",
                fix="declare the blocks conv and ssm with these shapes",
            )
        if state.options.layout not in ("", ops.layout):
            raise ConfigError(
                where=f"resource {state.key}.options.layout",
                got=state.options.layout,
                want=f"{ops.layout!r}, the layout of the gated_delta backend",
                fix="choose a backend of that layout, or leave the layout out",
            )
        splits = env.splits if ops.splits else ()
        return cls(key=spec.key, options=options, state=state, ops=ops, splits=splits)

    def layer(self, index: int) -> GatedDeltaLayer:
        """The face of the layer that owns layer ``index`` of the state."""
        blocks = self.state.layer(index)
        pools = GdnPools(conv_SCK=blocks["conv"], ssm_SHDE=blocks["ssm"])
        return GatedDeltaLayer(ops=self.ops, pools=pools)

    def plan(
        self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]
    ) -> GatedDeltaPlan:
        state = self._state_plan(upstream)
        at = pack(step, lease)
        plan = GatedDeltaPlan(
            slots_B=state.slots_B,
            fresh_B=state.fresh_B,
            q_starts_B=at.starts_B,
            q_lens_B=at.lens_B,
            row_T=at.row_T,
            col_T=at.col_T,
            max_q=at.max_row_tokens,
            decode=at.decode,
            num_lead_1=at.num_lead_1,
            lead_rows=at.lead_rows,
        )
        if lease is not None or self.ops.schedule is None:
            return plan
        return evolve(plan, schedule=self.ops.schedule(plan))

    def row_cost(self, spans: Mapping[str, int], before: int) -> RowCost:
        """The recurrence: per token and cell of a state a decay, and three products and sums."""
        o, layers = self.options, self.state.options.num_layers
        cells = o.num_v_heads * o.k_dim * o.v_dim
        return RowCost(num_flops=7 * layers * cells * spans[self.key])

    def combined_splits(self) -> tuple[CombinedSplit, ...]:
        return self.splits

    def reuse_refusal(self) -> Refusal | None:
        if self.ops.snapshots:
            return None
        return Refusal(
            code="no-snapshots",
            where=f"resource {self.key}",
            got="a gated_delta backend whose slots cannot be copied as snapshots",
            want="a backend that leaves a row's whole state in its slot after every step",
            fix="nothing to do: every request computes its whole prompt; or choose another backend",
            owner=self.key,
        )

    def resident_refusal(self, walk: str) -> Refusal | None:
        return None

    def resident_columns(self) -> tuple[Column, ...]:
        return ()

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> GatedDeltaPlan:
        state = self._state_plan(upstream)
        return GatedDeltaPlan(
            slots_B=state.slots_B,
            fresh_B=state.fresh_B,
            q_starts_B=rows.order_B,
            q_lens_B=rows.ones_B,
            row_T=rows.order_B,
            col_T=rows.zeros_B,
            max_q=1,
            decode=1,
        )

    def _state_plan(self, upstream: Mapping[str, Plan]) -> StatePlan:
        state = upstream[self.state.key]
        if not isinstance(state, StatePlan):
            raise TypeError(f"{self.key}: the plan of {self.state.key} is {type(state).__name__}")
        return state


def _slot_shapes(o: GatedDeltaOptions) -> dict[str, tuple[int, ...]]:
    channels = 2 * o.num_k_heads * o.k_dim + o.num_v_heads * o.v_dim
    return {"conv": (channels, o.conv_taps - 1), "ssm": (o.num_v_heads, o.k_dim, o.v_dim)}


def _shapes(state: StateResource) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, (shape, _) in state.options.blocks.items()}
