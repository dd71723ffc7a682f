"""What the talker may sample: sound or the end, no end too early, and a past that counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from mstar_core.resources.sampler.rules import (
    Claim,
    LogitRule,
    RuleContext,
    RuleState,
    StateSpec,
    SuppressRule,
)
from mstar_qwen3_tts.config import TtsConfig

LEAST_CODES = 2
"""The end is not among the first codes."""
REPETITION = "repetition"
"""The name of the rule that a request with a repetition penalty of its own switches off."""


class RepetitionRule(LogitRule):
    """Logits of codes that the row has sampled, divided by ``penalty``; multiplied below zero."""

    state: ClassVar[StateSpec]

    def __init__(self, penalty: float, vocab_size: int) -> None:
        self.name, self.penalty = REPETITION, penalty
        self.state = {"seen": ((vocab_size,), torch.bool, 0)}  # type: ignore[misc]

    def apply(self, logits_BV: Tensor, state_B: RuleState, context: RuleContext) -> Tensor:
        less = torch.where(logits_BV > 0, logits_BV / self.penalty, logits_BV * self.penalty)
        return torch.where(state_B["seen"], less, logits_BV)

    def update(
        self, state_B: RuleState, ids_B: Tensor, context: RuleContext
    ) -> Mapping[str, Tensor]:
        return {"seen": state_B["seen"].scatter(1, ids_B[:, None], True)}


class LeastRule(LogitRule):
    """Not ``end`` among the first ``LEAST_CODES``."""

    def __init__(self, end: int) -> None:
        self.name, self.end = "least", end

    def build(self, vocab_size: int, claim: Claim) -> None:
        self._end_V = claim("end", vocab_size, torch.bool)
        self._end_V[self.end] = True

    def apply(self, logits_BV: Tensor, state_B: RuleState, context: RuleContext) -> Tensor:
        early_B1 = (context.generated_B < LEAST_CODES)[:, None]
        return logits_BV.masked_fill(early_B1 & self._end_V, float("-inf"))


def logit_rules(config: TtsConfig, penalty: float) -> tuple[LogitRule, ...]:
    """The rules in the order in which they apply."""
    reserved = range(config.first_reserved, config.vocab_size)
    return (
        RepetitionRule(penalty, config.vocab_size),
        LeastRule(config.codec.eos),
        SuppressRule(ids=[i for i in reserved if i != config.codec.eos]),
    )
