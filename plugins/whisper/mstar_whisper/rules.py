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
        self._ids_V = claim("ids", vocab_size, torch.int64)
        self._ids_V.copy_(torch.arange(vocab_size))
        self._stamp_V = claim("stamps", vocab_size, torch.bool)
        self._stamp_V[self.begin :] = True
        self._first_V = claim("first", vocab_size, torch.bool)
        self._first_V[: self.begin] = True
        if self.max_initial is not None:
            self._first_V[self.begin + self.max_initial + 1 :] = True

    def apply(self, logits_BV: Tensor, state_B: RuleState, context: RuleContext) -> Tensor:
        last_B1 = state_B["last_is_stamp"][:, None]
        before_B1 = state_B["before_is_stamp"][:, None] | (context.generated_B < 2)[:, None]
        closing_B1 = last_B1 & ~before_B1
        earliest_B1 = state_B["latest"][:, None] + 1 - closing_B1.long()
        banned_BV = (
            (self._ids_V == self.no_timestamps)
            | (last_B1 & before_B1 & self._stamp_V)
            | (closing_B1 & (self._ids_V < self.eot))
            | (self._stamp_V & (self._ids_V < earliest_B1))
            | (context.fresh_B[:, None] & self._first_V)
        )
        ruled_BV = logits_BV.masked_fill(banned_BV, float("-inf"))
        any_stamp_B = ruled_BV[:, self.begin :].logsumexp(-1)
        best_text_B = ruled_BV[:, : self.begin].amax(-1)
        to_stamps_B1 = (any_stamp_B > best_text_B)[:, None]
        return ruled_BV.masked_fill(to_stamps_B1 & ~self._stamp_V, float("-inf"))

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
