"""Contract of ``sampling``: one token of each row from its logits.

A row is sampled in this order, each part in fp32: the model's rules and :class:`Penalise` (the
result is called *ruled* logits), temperature, top-k, top-p, min-p, noise, argmax.

Exact meaning
-------------
penalties
    ``x + bias``; then, for ids in the prompt or generated, ``x / repetition`` where x > 0 and
    ``x * repetition`` elsewhere; then, for ids generated ``count`` times,
    ``x - frequency * count - presence``.
temperature
    Below ``GREEDY_BELOW`` the row is greedy: the argmax of its ruled logits, filters and noise
    left out. Otherwise ``x / temperature``.
top-k
    The k largest remain, exactly k, of equals those with the lower id; 0 or less, or more than
    there are, keeps all.
top-p
    Over what top-k left, made to sum to 1: in falling order an id remains while the sum *before*
    it is below p. The first always remains.
min-p
    An id remains while its probability is at least ``min_p`` times the largest.
noise
    A Gumbel value that is a function of (seed, position, draw, vocabulary id) and of nothing else:
    see :mod:`mstar_core.ops.sampling.noise`, which a backend must reproduce bit for bit up to the
    two logarithms. Row, batch and step play no part.

``logprob_B`` is the log-softmax of the ruled logits at the chosen id, without temperature; what is
less likely than ``LEAST_LOGPROB``, or masked, is told as that: a finite number. ``finite_B`` is
whether every *raw* logit of the row is finite. A row of NaN changes no other row, and its id is
still one of the vocabulary.

Ids that must never be sampled are -inf in the ruled logits, or cut off by passing a narrower view.
"""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.ops.sampling.plans import EnterPlan, PenaltyPlan, SamplePlan

OPERATION = "sampling"
GREEDY_BELOW = 1e-5
"""A temperature below this is greedy."""
LEAST_LOGPROB = -9999.0
"""No log-probability is less."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-4, torch.float16: 1e-4}
"""Largest absolute difference of log-probabilities; ids are equal where no two nearly tie."""


@frozen(kw_only=True, eq=False)
class PenaltyRows:
    """A small pool of rows over the vocabulary. Row 0 is zero for ever: no bias, nothing seen."""

    prompt_RV: Tensor
    """bool: the id is in the prompt."""
    count_RV: Tensor
    """int32: how often the id was generated."""
    bias_RV: Tensor
    """fp32: added to the logits."""


@frozen(kw_only=True, eq=False)
class Sampled:
    """What a step sampled, per row."""

    ids_B: Tensor
    """int64, in the vocabulary."""
    logprob_B: Tensor
    """fp32, of the chosen id among the ruled logits; ``LEAST_LOGPROB`` at least."""
    finite_B: Tensor
    """bool, every raw logit of the row is finite."""
    top_ids_BK: Tensor | None = None
    """int64, the likeliest ids, falling; None where the plan asks for none."""
    top_logprobs_BK: Tensor | None = None
    """fp32, beside them."""


class Enter(Protocol):
    """Clear fresh rows, then enter prompt ids and biases. Changes ``rows`` in place, not row 0."""

    def __call__(self, rows: PenaltyRows, plan: EnterPlan) -> None: ...


class Penalise(Protocol):
    """fp32 ``logits_BV`` with bias and penalties. Changes nothing."""

    def __call__(self, logits_BV: Tensor, rows: PenaltyRows, plan: PenaltyPlan) -> Tensor: ...


class Count(Protocol):
    """Count each row's sampled id as generated. Changes ``rows`` in place, never row 0."""

    def __call__(self, rows: PenaltyRows, plan: PenaltyPlan, ids_B: Tensor) -> None: ...


class Sample(Protocol):
    """One token of each row from its ruled logits. Changes nothing.

    ``finite_B`` is passed where rules or penalties changed the logits; None: they are the raw
    ones, and it is found here. ``draw`` numbers the draws at one position.
    """

    def __call__(
        self,
        logits_BV: Tensor,
        plan: SamplePlan,
        *,
        finite_B: Tensor | None = None,
        draw: int = 0,
    ) -> Sampled: ...


class HeadSample(Protocol):
    """:class:`Sample` of ``hidden_BH @ weight_VH.T``, whose logits need not be written."""

    def __call__(
        self, hidden_BH: Tensor, weight_VH: Tensor, plan: SamplePlan, *, draw: int = 0
    ) -> Sampled: ...


class Finite(Protocol):
    """bool ``[B]``: whether every logit of the row is finite."""

    def __call__(self, logits_BV: Tensor) -> Tensor: ...


@frozen(kw_only=True, eq=False)
class Sampling:
    """What a backend of ``sampling`` binds. Geometry of the request: ``vocab_size``."""

    sample: Sample
    head_sample: HeadSample
    finite: Finite
    enter: Enter
    penalise: Penalise
    count: Count
