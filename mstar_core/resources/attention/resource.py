"""Attention: the layout of a step's queries, over a pool of keys and values or without one.

::

    self      queries of this step   reads kv (written in the same step)   depends_on kv=KEY
    cross     queries of this step   reads kv that another walk wrote      depends_on kv=KEY, span 0
    ragged    queries of this step   reads the keys of the step itself     no pool

It holds no state of its own: lengths and pages are the pool's, rows and tokens are the step's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict, Unpack

from attrs import define, evolve, frozen
from torch import Tensor

from mstar_core.errors import ConfigError, Refusal
from mstar_core.ops.paged_attention import AttentionStep, PagedAttention
from mstar_core.ops.ragged_attention import RaggedAttention
from mstar_core.resources.attention.config import AttentionConfig, AttentionOptions
from mstar_core.resources.attention.plan import AttentionPlan, RaggedPlan
from mstar_core.resources.base import BuildEnv, Resource, ResourceSpec
from mstar_core.resources.cost import RowCost
from mstar_core.resources.kv import KVPlan, KVResource
from mstar_core.resources.packing import pack
from mstar_core.resources.resident import Column, ResidentRows
from mstar_core.resources.settings import read_settings
from mstar_core.step import CombinedSplit, Lease, Plan, ResourceStep


class Around(TypedDict, total=False):
    """What a step does around attention; each part may be absent."""

    gate_TND: Tensor | None
    """Raw gate: the output is multiplied by its sigmoid."""
    q_norm: Tensor | None
    """``[D]``, effective multiplier of the RMS norm over each query head, before rope."""
    k_norm: Tensor | None
    eps: float
    rope: tuple[Tensor, Tensor] | None
    """``(cos_TR, sin_TR)``, as a position resource's ``rope`` gives them."""


@frozen(kw_only=True, eq=False)
class PagedLayer:
    """One layer's attention over a paged pool: what a model's layer calls."""

    ops: PagedAttention
    pools: tuple[Tensor, Tensor]
    """Keys and values of the layer, ``[P, page_tokens, G, D]``."""
    scale: float
    causal: bool

    def step(
        self,
        q_TND: Tensor,
        k_TGD: Tensor | None,
        v_TGD: Tensor | None,
        plan: AttentionPlan,
        **around: Unpack[Around],
    ) -> Tensor:
        """Norm, rotate, write, attend, gate → ``o_TND``. ``k_TGD`` None reads the pool only."""
        step = AttentionStep(
            scale=self.scale,
            causal=self.causal,
            gate_TND=around.get("gate_TND"),
            q_norm_D=around.get("q_norm"),
            k_norm_D=around.get("k_norm"),
            eps=around.get("eps", 1e-6),
            rope=around.get("rope"),
        )
        return self.ops.step(q_TND, k_TGD, v_TGD, self.pools, plan, step)


@frozen(kw_only=True, eq=False)
class RaggedLayer:
    """Attention of packed rows over themselves; the same for every layer."""

    ops: RaggedAttention
    scale: float
    causal: bool

    def step(self, q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor, plan: RaggedPlan) -> Tensor:
        """Attend → ``o_TND``; no row sees another."""
        return self.ops.attend(q_TND, k_TGD, v_TGD, plan, scale=self.scale, causal=self.causal)


@define(kw_only=True, eq=False)
class AttentionResource(Resource):
    """One attention of one node. A row's span is the number of its queries."""

    kind: ClassVar[str] = "attention"
    Options: ClassVar[type] = AttentionOptions
    Config: ClassVar[type] = AttentionConfig
    resident_adds: ClassVar[tuple[int, ...]] = (1,)

    key: str
    options: AttentionOptions
    kv: KVResource | None
    ops: Any
    splits: tuple[CombinedSplit, ...] = ()

    @classmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> AttentionResource:
        options = read_settings(AttentionOptions, spec.options, f"resource {spec.key}.options")
        read_settings(AttentionConfig, env.config, f"resources.{spec.key}")
        sizes = {
            "num_heads": options.num_heads,
            "num_kv_heads": options.num_kv_heads,
            "head_dim": options.head_dim,
        }
        role = spec.depends_on.get("kv")
        if role is None:
            ops = env.bind("ragged_attention", sizes)
            return cls(key=spec.key, options=options, kv=None, ops=ops)
        kv = env.built.get(role)
        if not isinstance(kv, KVResource) or not _same_heads(options, kv):
            raise ConfigError(
                where=f"resource {spec.key}.depends_on.kv",
                got=role,
                want=f"a kv resource of {options.num_kv_heads} heads of {options.head_dim}",
                fix="name a kv resource declared before it, with the same num_kv_heads, head_dim",
            )
        pages = {"page_tokens": kv.page_tokens, "max_tokens": kv.table_tokens}
        ops = env.bind("paged_attention", sizes | pages)
        splits = env.splits if ops.splits else ()
        return cls(key=spec.key, options=options, kv=kv, ops=ops, splits=splits)

    @property
    def scale(self) -> float:
        """The factor on the scores."""
        return self.options.scale or self.options.head_dim**-0.5

    def layer(self, index: int) -> PagedLayer | RaggedLayer:
        """The face of layer ``index``: a :class:`RaggedLayer` where there is no pool."""
        causal = self.options.causal
        if self.kv is None:
            return RaggedLayer(ops=self.ops, scale=self.scale, causal=causal)
        return PagedLayer(ops=self.ops, pools=self.kv.layer(index), scale=self.scale, causal=causal)

    def plan(
        self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]
    ) -> AttentionPlan | RaggedPlan:
        at = pack(step, lease)
        if self.kv is None:
            return RaggedPlan(
                q_starts_B=at.starts_B,
                q_lens_B=at.lens_B,
                row_T=at.row_T,
                col_T=at.col_T,
                max_q=at.max_row_tokens,
            )
        kv = self._kv_plan(upstream)
        plan = AttentionPlan(
            pages_BW=kv.pages_BW,
            kv_lens_B=kv.kv_lens_B,
            before_B=kv.before_B,
            q_starts_B=at.starts_B,
            q_lens_B=at.lens_B,
            row_T=at.row_T,
            col_T=at.col_T,
            write_T=kv.write_T,
            max_q=at.max_row_tokens,
            decode=at.decode,
            num_lead_1=at.num_lead_1,
            lead_rows=at.lead_rows,
        )
        if lease is not None or self.ops.schedule is None:
            return plan
        return evolve(plan, schedule=self.ops.schedule(plan))

    def row_cost(self, spans: Mapping[str, int], before: int) -> RowCost:
        """The tokens of the pool that are read, and the products with them.

        Those of this step are read where they are made. A pool that the row only reads is full.
        Without a pool nothing is known of the layers, and nothing is counted.
        """
        if self.kv is None:
            return RowCost()
        adds, queries, o = spans.get(self.kv.key, 0), spans[self.key], self.options
        held = before if adds else self.kv.max_tokens
        own = adds * (adds + 1) // 2 if o.causal else queries * adds
        products = 4 * self.kv.options.num_layers * o.num_heads * o.head_dim
        return RowCost(
            num_bytes=held * self.kv.token_bytes, num_flops=products * (queries * held + own)
        )

    def combined_splits(self) -> tuple[CombinedSplit, ...]:
        return self.splits

    def reuse_refusal(self) -> Refusal | None:
        return None

    def resident_refusal(self, walk: str) -> Refusal | None:
        if self.kv is not None:
            return None
        return Refusal(
            code="no-pool",
            where=f"resource {self.key}, walk {walk}",
            got="attention over the step's own rows, without a pool",
            want="attention over a pool",
            fix="nothing to do: the walk is planned on the host",
            owner=self.key,
        )

    def resident_columns(self) -> tuple[Column, ...]:
        return ()

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> AttentionPlan:
        kv = self._kv_plan(upstream)
        return AttentionPlan(
            pages_BW=kv.pages_BW,
            kv_lens_B=kv.kv_lens_B,
            before_B=kv.before_B,
            q_starts_B=rows.order_B,
            q_lens_B=rows.ones_B,
            row_T=rows.order_B,
            col_T=rows.zeros_B,
            write_T=kv.write_T,
            max_q=1,
            decode=1,
        )

    def _kv_plan(self, upstream: Mapping[str, Plan]) -> KVPlan:
        key = self.kv.key if self.kv is not None else ""
        kv = upstream[key]
        if not isinstance(kv, KVPlan):
            raise TypeError(f"{self.key}: the plan of {key} is a {type(kv).__name__}")
        return kv


def _same_heads(options: AttentionOptions, kv: KVResource) -> bool:
    mine = (options.num_kv_heads, options.head_dim)
    return mine == (kv.options.num_kv_heads, kv.options.head_dim)
