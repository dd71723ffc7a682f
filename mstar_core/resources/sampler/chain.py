"""The logit rules of a sampler in order, with their state by carry row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.resources.base import BuildEnv
from mstar_core.resources.sampler.plan import SamplerPlan
from mstar_core.resources.sampler.rules import LogitRule, RuleContext, RuleState


@frozen(kw_only=True, eq=False)
class RuleChain:
    """Rules, and per rule the tensors ``[carry rows, *shape]`` of its state; row 0 is trash."""

    rules: tuple[LogitRule, ...]
    kept: tuple[RuleState, ...]

    @classmethod
    def claim(
        cls, key: str, rules: tuple[LogitRule, ...], vocab: int, num_rows: int, env: BuildEnv
    ) -> RuleChain:
        """Build the rules and their state for ``num_rows`` carry rows."""
        kept = []
        for rule in rules:

            def claim(name: str, length: int, dtype: torch.dtype, of: str = rule.name) -> Tensor:
                return env.claim(key, f"{of}.{name}", (length,), dtype)

            rule.build(vocab, claim)
            kept.append(
                {
                    name: env.claim(key, f"{rule.name}.{name}", (num_rows, *shape), dtype)
                    for name, (shape, dtype, _) in rule.state.items()
                }
            )
        return cls(rules=rules, kept=tuple(kept))

    def read(self, plan: SamplerPlan) -> list[RuleState]:
        """Each rule's state per row; a row that has chosen nothing starts at the fill."""
        return [
            {
                name: _select(plan.fresh_B, rule.state[name][2], kept[name][plan.carry_row_B])
                for name in rule.state
            }
            for rule, kept in zip(self.rules, self.kept, strict=True)
        ]

    def apply(self, logits_BV: Tensor, states: Sequence[RuleState], plan: SamplerPlan) -> Tensor:
        """Every rule in order, each on the rows that want it."""
        for i, (rule, state_B) in enumerate(zip(self.rules, states, strict=True)):
            context = _context(plan, i)
            ruled_BV = rule.apply(logits_BV, state_B, context)
            logits_BV = torch.where(context.enabled_B[:, None], ruled_BV, logits_BV)
        return logits_BV

    def write(self, states: Sequence[RuleState], ids_B: Tensor, plan: SamplerPlan) -> None:
        """Keep each rule's state after ``ids_B``; rows that do not sample write row 0."""
        for i, (rule, state_B) in enumerate(zip(self.rules, states, strict=True)):
            if not rule.state:
                continue
            for name, new_B in rule.update(state_B, ids_B, _context(plan, i)).items():
                kept = self.kept[i][name]
                kept.index_copy_(0, plan.carry_write_B, new_B.to(kept.dtype))


def _context(plan: SamplerPlan, rule: int) -> RuleContext:
    return RuleContext(
        generated_B=plan.generated_B, fresh_B=plan.fresh_B, enabled_B=plan.enabled_BR[:, rule]
    )


def _select(fresh_B: Tensor, fill: float, kept_B: Tensor) -> Tensor:
    shaped = fresh_B.view(-1, *[1] * (kept_B.dim() - 1))
    return torch.where(shaped, torch.full_like(kept_B, fill), kept_B)
