"""Logit rules: small operations over a row's logits with device state of their own.

::

    logits ──► rule.apply ──► … ──► chosen ids ──► rule.update
                   ▲                                   │
                   └───────── carry row of the request ┘

The state is kept by carry row and never seen by the host, so a rule follows the tokens of steps
that nobody has read yet. A rule runs inside captured steps: static shapes, no host reads. Tensors
it needs are made in :meth:`LogitRule.build`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.errors import ConfigError, RequestError, Words
from mstar_core.names import suggest

Claim = Callable[[str, int, "torch.dtype"], Tensor]
"""``claim(name, length, dtype)``: a zeroed fixed buffer ``[length]`` of the sampler."""
RuleState = Mapping[str, Tensor]
StateSpec = Mapping[str, tuple[tuple[int, ...], Any, float]]
"""Name → (shape of one row, dtype, value before the first token)."""


@frozen(kw_only=True, eq=False)
class RuleContext:
    """What a rule may know of each row."""

    generated_B: Tensor
    """int32, tokens chosen before."""
    fresh_B: Tensor
    """bool, none was."""
    enabled_B: Tensor
    """bool, the request wants this rule; the sampler leaves the other rows alone."""


class LogitRule(ABC):
    """One rule of a model. ``name`` is the request's key in ``settings["sampler_rules"]``."""

    name: str
    default: bool = True
    """Whether the rule applies to a request that does not name it."""
    state: ClassVar[StateSpec] = {}

    def build(self, vocab_size: int, claim: Claim) -> None:
        """Claim and fill the tensors that the rule reads. Called once, before any capture."""

    @abstractmethod
    def apply(self, logits_BV: Tensor, state_B: RuleState, context: RuleContext) -> Tensor:
        """New float32 logits; forbidden tokens get ``-inf``. Changes nothing in place."""

    def update(
        self, state_B: RuleState, ids_B: Tensor, context: RuleContext
    ) -> Mapping[str, Tensor]:
        """The state after ``ids_B`` (int64) were chosen, one tensor per name of ``state``."""
        return state_B


def check_wanted(wanted: object, rules: Sequence[LogitRule]) -> None:
    """Raise RequestError unless ``wanted`` says of rules that there are whether they apply."""
    names = [rule.name for rule in rules]
    if not isinstance(wanted, Mapping):
        raise RequestError(
            where="settings.sampler_rules",
            got=wanted,
            want="a mapping of rule names to true or false",
            fix="leave it out, or write for example {'suppress': False}",
        )
    for name, applies in wanted.items():
        if name not in names:
            raise RequestError(
                where=f"settings.sampler_rules.{name}",
                got=Words("a rule that the model does not have"),
                want=f"one of: {', '.join(names)}" if names else "nothing",
                fix=suggest(str(name), names),
            )
        if type(applies) is not bool:
            raise RequestError(
                where=f"settings.sampler_rules.{name}",
                got=applies,
                want="true or false",
                fix="write True or False",
            )


class SuppressRule(LogitRule):
    """Never ``ids``; and not ``first_ids`` as the first token."""

    def __init__(
        self, ids: Sequence[int], first_ids: Sequence[int] = (), name: str = "suppress"
    ) -> None:
        self.name = name
        self.ids = tuple(ids)
        self.first_ids = tuple(first_ids)

    def build(self, vocab_size: int, claim: Claim) -> None:
        self._always_V = _mask(claim("always", vocab_size, torch.bool), self.ids)
        first = {*self.ids, *self.first_ids}
        self._first_V = _mask(claim("first", vocab_size, torch.bool), sorted(first))

    def apply(self, logits_BV: Tensor, state_B: RuleState, context: RuleContext) -> Tensor:
        banned_BV = torch.where(context.fresh_B[:, None], self._first_V, self._always_V)
        return logits_BV.masked_fill(banned_BV, float("-inf"))


def _mask(mask_V: Tensor, ids: Sequence[int]) -> Tensor:
    if beyond := [i for i in ids if not 0 <= i < len(mask_V)]:
        raise ConfigError(
            where="suppressed tokens",
            got=beyond,
            want=f"token ids from 0 to {len(mask_V) - 1}",
            fix="correct the list in the model's configuration",
        )
    mask_V[list(ids)] = True
    return mask_V
