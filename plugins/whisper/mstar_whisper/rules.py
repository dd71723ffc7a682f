"""Logit rules that live on the device: the grammar of timestamps, and the choice of a language.

::

    <0.00> And so it was <1.20> <1.20> that he came <2.84> <2.84> eot
    opens                closes opens               closes pair
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from mstar_core.resources.sampler.rules import (
    Claim,
    LogitRule,
    RuleContext,
    RuleState,
    StateSpec,
)
from mstar_whisper.front import TIMESTAMPS

_NONE = -1


class TimestampRule(LogitRule):
    """Timestamps come first, in pairs and in order; a likely one is preferred to any text."""

    name = TIMESTAMPS
    default = False
    state: ClassVar[StateSpec] = {
        "last_is_stamp": ((), torch.bool, 0),
        "before_is_stamp": ((), torch.bool, 0),
        "latest": ((), torch.int64, _NONE),
    }

    def __init__(self, begin: int, eot: int, no_timestamps: int, max_initial: int | None) -> None:
        self.begin = begin
        """The id of 0.00; all ids from here on are timestamps."""
        self.eot = eot
        self.no_timestamps = no_timestamps
        self.max_initial = max_initial
        """Steps of 0.02 s that the first timestamp may be late, or None for any."""

    def build(self, vocab_size: int, claim: Claim) -> None:
        self._stamps_S = claim("stamps", vocab_size - self.begin, torch.int64)
        self._stamps_S.copy_(torch.arange(self.begin, vocab_size))
        self._late_S = claim("late", vocab_size - self.begin, torch.bool)
        if self.max_initial is not None:
            self._late_S[self.max_initial + 1 :] = True
        self._never_M = claim("never", self.begin - self.eot, torch.bool)
        self._never_M[self.no_timestamps - self.eot] = True

    def apply(self, logits_BV: Tensor, state_B: RuleState, context: RuleContext) -> Tensor:
        """Text, marks that are none (the end among them), and timestamps, each by its own rule."""
        fresh_B1, last_B1 = context.fresh_B[:, None], state_B["last_is_stamp"][:, None]
        before_B1 = state_B["before_is_stamp"][:, None] | (context.generated_B < 2)[:, None]
        closing_B1 = last_B1 & ~before_B1
        earliest_B1 = state_B["latest"][:, None] + 1 - closing_B1.long()
        text_BX, marks_BM, stamps_BS = logits_BV.tensor_split((self.eot, self.begin), -1)
        banned_BS = (self._stamps_S < earliest_B1) | (last_B1 & before_B1)
        stamps_BS = stamps_BS.masked_fill(banned_BS | (fresh_B1 & self._late_S), -torch.inf)
        marks_BM = marks_BM.masked_fill(self._never_M | fresh_B1, -torch.inf)
        no_text_B1 = closing_B1 | fresh_B1
        best_text_B1 = text_BX.amax(-1, keepdim=True).masked_fill(no_text_B1, -torch.inf)
        best_B1 = torch.maximum(best_text_B1, marks_BM.amax(-1, keepdim=True))
        to_stamps_B1 = stamps_BS.logsumexp(-1, keepdim=True) > best_B1
        text_BX = text_BX.masked_fill(no_text_B1 | to_stamps_B1, -torch.inf)
        return torch.cat([text_BX, marks_BM.masked_fill(to_stamps_B1, -torch.inf), stamps_BS], -1)

    def update(
        self, state_B: RuleState, ids_B: Tensor, context: RuleContext
    ) -> Mapping[str, Tensor]:
        is_stamp_B = ids_B >= self.begin
        return {
            "last_is_stamp": is_stamp_B,
            "before_is_stamp": state_B["last_is_stamp"],
            "latest": torch.where(is_stamp_B, ids_B, state_B["latest"]),
        }


class OnlyRule(LogitRule):
    """Nothing but ``ids``, for requests that ask for it."""

    default = False

    def __init__(self, ids: Sequence[int], name: str) -> None:
        self.ids = tuple(ids)
        self.name = name

    def build(self, vocab_size: int, claim: Claim) -> None:
        self._others_V = claim("others", vocab_size, torch.bool)
        self._others_V.fill_(True)
        self._others_V[list(self.ids)] = False

    def apply(self, logits_BV: Tensor, state_B: RuleState, context: RuleContext) -> Tensor:
        return logits_BV.masked_fill(self._others_V, float("-inf"))
