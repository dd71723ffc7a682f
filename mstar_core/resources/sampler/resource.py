"""The sampler: from a row's last hidden state or logits to its next token, inside the step.

::

    hidden_TH ── last ──► hidden_BH ── head ──► logits_BV
    logits_BV ── rules ── bias ── penalties ── temperature ── top-k ── top-p ── min-p ──► ids_B
                   │                  │                                                     │
              carry row         penalty row ◄────────────── counted in the step ────────────┘

Everything that a token changes lives on the device and is written in stream order, so the next
step may be launched before the host has read this one. Noise is a function of the request's seed,
the token's position, the draw and the vocabulary id; row and step play no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import define
from torch import Tensor

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import ConfigError, Refusal, RequestError, Words
from mstar_core.ops.sampling import PenaltyRows, Sampled, Sampling
from mstar_core.resources.base import BuildEnv, Opening, Resource, ResourceSpec
from mstar_core.resources.carry import CarryPlan, CarryResource, CarryStep, carry_step
from mstar_core.resources.fence import IdPool
from mstar_core.resources.packing import Packing, pack
from mstar_core.resources.resident import Column, ResidentRows
from mstar_core.resources.sampler.chain import RuleChain
from mstar_core.resources.sampler.config import SamplerConfig, SamplerOptions
from mstar_core.resources.sampler.kept import KeptSettings
from mstar_core.resources.sampler.plan import (
    DRAWS,
    PENALISED,
    RULED,
    SAMPLED,
    TOP_LOGPROBS,
    SamplerPlan,
)
from mstar_core.resources.sampler.pool import claim_rows, entries, padded
from mstar_core.resources.sampler.rules import check_wanted
from mstar_core.resources.sampler.table import NEUTRAL, SettingsTable
from mstar_core.resources.settings import read_settings
from mstar_core.step import Bucket, Lease, Plan, ResourceStep, Shortage


@define(kw_only=True, eq=False)
class SamplerResource(Resource):
    """The sampler of one node. Steps are :class:`CarryStep`; a span is the tokens of the row.

    ``opening.settings``: ``sampler`` → :class:`SamplingSettings` (greedy where absent),
    ``sampler_rules`` → rule name → whether it applies.
    """

    kind: ClassVar[str] = "sampler"
    request_settings: ClassVar[tuple[str, ...]] = ("sampler_rules",)
    Options: ClassVar[type] = SamplerOptions
    Config: ClassVar[type] = SamplerConfig
    resident_adds: ClassVar[tuple[int, ...]] = (1,)

    key: str
    config: SamplerConfig
    carry_key: str
    vocab: int
    """Ids that may be sampled: the leading columns of the logits."""
    max_prompt_ids: int
    """Different ids that a prompt can have."""
    table: SettingsTable
    pool: PenaltyRows
    rows: IdPool
    chain: RuleChain
    kept: KeptSettings
    ops: Sampling
    carry_row: np.ndarray
    """int64 per request: the row of the carry that the rules' state and the settings lie in."""

    @classmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> SamplerResource:
        options = read_settings(SamplerOptions, spec.options, f"resource {spec.key}.options")
        config = read_settings(SamplerConfig, env.config, f"resources.{spec.key}")
        carry = env.built.get(spec.depends_on.get("carry", "carry"))
        if not isinstance(carry, CarryResource):
            raise ConfigError(
                where=f"resource {spec.key}.depends_on.carry",
                got=Words("no carry resource"),
                want="the key of a carry resource declared before it",
                fix="declare carry before the sampler",
            )
        vocab = min(options.valid_vocab or options.vocab_size, options.vocab_size)
        return cls(
            key=spec.key,
            config=config,
            carry_key=carry.key,
            vocab=vocab,
            max_prompt_ids=min(env.max_context, vocab),
            table=SettingsTable(env.table, options.rules, vocab),
            pool=claim_rows(spec.key, config.penalty_rows, vocab, env),
            rows=IdPool(config.penalty_rows + 1, env.fences),
            chain=RuleChain.claim(spec.key, options.rules, vocab, carry.num_rows, env),
            kept=KeptSettings.claim(spec.key, carry.num_rows, len(options.rules), env),
            ops=env.bind("sampling", {"vocab_size": vocab}),
            carry_row=carry.row,
        )

    def last(self, hidden_TH: Tensor, plan: SamplerPlan) -> Tensor:
        """``hidden_BH``: the hidden state of each row's last token."""
        return hidden_TH if plan.every else hidden_TH[plan.last_B]

    def sample(self, logits_BV: Tensor, plan: SamplerPlan, draw: int = 0) -> Sampled:
        """One token per row of ``logits_BV``; ``draw`` tells several choices of a position apart.

        Columns past the valid vocabulary are left out. Writes penalty rows and rule state.
        """
        if plan.keeps:
            self.kept.keep(plan)
        logits_BV = logits_BV[:, : self.vocab]
        if not (self.chain.rules or plan.penalised):
            return self.ops.sample(logits_BV, plan, draw=draw)
        finite_B = self.ops.finite(logits_BV)
        states = self.chain.read(plan)
        ruled_BV = self.chain.apply(logits_BV.float(), states, plan)
        if plan.penalised:
            if plan.fresh_row_B is not None:
                self.ops.enter(self.pool, plan)
            ruled_BV = self.ops.penalise(ruled_BV, self.pool, plan)
        chosen = self.ops.sample(ruled_BV, plan, finite_B=finite_B, draw=draw)
        if plan.penalised:
            self.ops.count(self.pool, plan, chosen.ids_B)
        self.chain.write(states, chosen.ids_B, plan)
        return chosen

    def sample_head(
        self, hidden_BH: Tensor, weight_VH: Tensor, plan: SamplerPlan, draw: int = 0
    ) -> Sampled:
        """:meth:`sample` of ``hidden_BH @ weight_VH.T``, fused where the logits are used as is."""
        if self.chain.rules or plan.penalised:
            return self.sample(hidden_BH @ weight_VH.t(), plan, draw)
        if plan.keeps:
            self.kept.keep(plan)
        weight_VH = weight_VH[: self.vocab]
        return self.ops.head_sample(hidden_BH, weight_VH, plan, draw=draw)

    def check(self, opening: Opening) -> None:
        check_wanted(opening.settings.get("sampler_rules", {}), self.chain.rules)
        s = _settings(opening)
        if (s.logprobs or 0) > self.config.max_top_logprobs:
            raise RequestError(
                where="logprobs",
                got=s.logprobs,
                want=f"at most {self.config.max_top_logprobs}",
                fix="ask for fewer",
            )
        if beyond := [i for i in s.logit_bias if i >= self.vocab]:
            raise RequestError(
                where="logit_bias",
                got=beyond[0],
                want=f"token ids below {self.vocab}",
                fix="name tokens of this model",
            )
        if s.needs_row and not self.config.penalty_rows:
            raise RequestError(
                where="repetition_penalty, presence_penalty, frequency_penalty, logit_bias",
                got=Words("a request that uses one of them"),
                want=f"none of them: resources.{self.key}.penalty_rows is 0",
                fix="leave them out, or have penalty_rows raised",
            )

    def can_open(self, opening: Opening) -> Shortage | None:
        if not _settings(opening).needs_row or self.rows.num_free:
            return None
        return self._no_row()

    def open(self, handle: int, opening: Opening) -> None:
        settings = _settings(opening)
        self.table.fill(handle, settings, opening)
        if settings.needs_row:
            self.table.penalty_row[handle] = self.rows.take(1)[0]

    def plan(
        self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]
    ) -> SamplerPlan:
        carry = self._carry_plan(upstream)
        part, at, t = carry_step(step), pack(step, lease), self.table
        variant = self.variant(step) if lease is None else lease.bucket.variant
        floats = np.repeat(NEUTRAL[:, None], len(at.lens_B), axis=1)
        floats[:, : at.num_rows] = t.floats[step.handles_B].T
        enabled_BR = None
        if self.chain.rules:
            enabled_BR = np.zeros((len(at.lens_B), len(self.chain.rules)), dtype=np.bool_)
            enabled_BR[: at.num_rows] = t.enabled[step.handles_B]
        generated_B = t.generated[step.handles_B]
        return SamplerPlan(
            last_B=at.last_B,
            temperature_B=floats[0],
            top_p_B=floats[1],
            min_p_B=floats[2],
            top_k_B=at.rows(t.top_k[step.handles_B], np.int32),
            seed_B=at.rows(t.seed[step.handles_B]),
            position_B=at.rows(t.length[step.handles_B] + step.spans_B),
            generated_B=at.rows(generated_B, np.int32),
            fresh_B=at.rows(generated_B == 0, np.bool_, fill=True),
            enabled_BR=enabled_BR,
            carry_row_B=carry.row_B,
            carry_write_B=carry.write_B,
            sampled=int(bool(variant & SAMPLED)),
            every=int(lease is not None and lease.bucket.kind == "decode"),
            top_logprobs=self._num_top(step, lease) if variant & TOP_LOGPROBS else 0,
            penalised=int(bool(variant & PENALISED)),
            keeps=1,
            **(self._penalties(part, at, floats, lease) if variant & PENALISED else {}),
        )

    def reuse_refusal(self) -> Refusal | None:
        return None

    def start_at(self, handle: int, length: int) -> None:
        self.table.length[handle] = length

    def resident_refusal(self, walk: str) -> Refusal | None:
        return None

    def resident_columns(self) -> tuple[Column, ...]:
        return (
            Column(name="length", host=self.table.length, advances=True),
            Column(name="generated", host=self.table.generated, advances=True),
        )

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> SamplerPlan:
        """The settings come from the carry row, where the request's first steps kept them.

        What a step reads of neither is left out: a greedy one without rules has none of them.
        """
        carry, sampled = self._carry_plan(upstream), bool(rows.variant & SAMPLED)
        read: dict[str, Any] = dict.fromkeys((*DRAWS, *RULED))
        if sampled:
            read |= self.kept.of(carry.row_B) | {"position_B": cells["length"] + rows.real_B}
        if self.chain.rules:
            read["generated_B"] = cells["generated"].int()
            read["fresh_B"] = cells["generated"] == 0
            read["enabled_BR"] = self.kept.enabled_RR[carry.row_B]
        return SamplerPlan(
            last_B=rows.places_B,
            carry_row_B=carry.row_B,
            carry_write_B=carry.write_B,
            sampled=int(sampled),
            every=1,
            **read,
        )

    def _carry_plan(self, upstream: Mapping[str, Plan]) -> CarryPlan:
        carry = upstream[self.carry_key]
        if not isinstance(carry, CarryPlan):
            raise TypeError(f"{self.key}: the plan of {self.carry_key} is {type(carry).__name__}")
        return carry

    def commit(self, step: ResourceStep) -> None:
        self.table.length[step.handles_B] += step.spans_B
        self.table.generated[step.handles_B] += carry_step(step).samples_B

    def close(self, handle: int, fence: int) -> None:
        if self.table.penalty_row[handle]:
            self.rows.give_back([self.table.penalty_row[handle]], fence)
        self.table.clear(handle)

    def pieces(self, handle: int) -> Sequence[Tensor]:
        """The penalty row where the request has one, the rules' state, and the kept settings."""
        carry, penalty = int(self.carry_row[handle]), int(self.table.penalty_row[handle])
        own = [tensor[penalty] for tensor in attrs.astuple(self.pool, recurse=False)]
        by_carry = [t for kept in self.chain.kept for t in kept.values()]
        by_carry += attrs.astuple(self.kept, recurse=False)
        return [*(own if penalty else ()), *(tensor[carry] for tensor in by_carry)]

    def offload(self, handle: int, fence: int) -> None:
        if self.table.penalty_row[handle]:
            self.rows.give_back([self.table.penalty_row[handle]], fence)
            self.table.penalty_row[handle] = 0

    def can_reload(self, handle: int) -> Shortage | None:
        if not self.table.needs[handle] & PENALISED or self.rows.num_free:
            return None
        return self._no_row()

    def reload(self, handle: int) -> None:
        if self.table.needs[handle] & PENALISED:
            self.table.penalty_row[handle] = self.rows.take(1)[0]

    def variant(self, step: ResourceStep) -> int:
        needs_B = self.table.needs[step.handles_B]
        return int(np.bitwise_or.reduce(needs_B[carry_step(step).samples_B], initial=0))

    def variants(self) -> tuple[int, ...]:
        return (0, SAMPLED)

    def all_variants(self) -> int:
        return SAMPLED | PENALISED | TOP_LOGPROBS

    def capture_refusal(self, bucket: Bucket) -> Refusal | None:
        if not bucket.variant & PENALISED:
            return None
        return Refusal(
            code="penalties",
            where=str(bucket),
            got="rows with penalties or a bias, whose first step brings the whole prompt",
            want="a variant without them",
            fix="nothing to do: the step runs eagerly",
            owner=self.key,
        )

    def rebuilds(self, opening: Opening) -> bool:
        """Counts of chosen tokens and the rules' state are made by sampling alone."""
        return not _settings(opening).needs_row and not self.chain.rules

    def held(self) -> Mapping[str, tuple[int, int]]:
        return {"penalty rows": (self.rows.num_free + self.rows.num_cooling, self.rows.num_ids)}

    def _no_row(self) -> Shortage:
        cooling = self.rows.num_cooling
        return Shortage(key=self.key, need=1, free=0, cooling=cooling, unit="penalty rows")

    def _num_top(self, step: ResourceStep, lease: Lease | None) -> int:
        wanted = self.table.top_logprobs[step.handles_B].max(initial=0)
        return int(wanted) if lease is None else self.config.max_top_logprobs

    def _penalties(
        self, part: CarryStep, at: Packing, floats: np.ndarray, lease: Lease | None
    ) -> dict[str, np.ndarray]:
        row_B = self.table.penalty_row[part.handles_B] * part.samples_B
        begins_B = (row_B > 0) & (self.table.generated[part.handles_B] == 0)
        fields = {
            "penalty_row_B": at.rows(row_B),
            "repetition_B": floats[3],
            "presence_B": floats[4],
            "frequency_B": floats[5],
        }
        if lease is None and not begins_B.any():
            return fields
        begun = entries(self.table, part.handles_B[begins_B])
        if lease is not None:
            begun = padded(begun, self.rows.num_ids, self.max_prompt_ids)
        return fields | begun


def _settings(opening: Opening) -> SamplingSettings:
    settings: SamplingSettings = opening.settings.get("sampler") or SamplingSettings()
    return settings
