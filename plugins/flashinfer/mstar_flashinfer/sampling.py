"""``sampling`` with FlashInfer's filters, which find a threshold without sorting.

Its samplers are left out: they draw by the number of the row, and the contract's noise depends on
seed, position, draw and id alone. Their thresholds keep or drop all of equal values; which of
those remain is settled here, those of lower ids first, as the contract says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.sampling import SamplePlan, Sampling, reference
from mstar_core.ops.sampling.contract import GREEDY_BELOW, OPERATION
from mstar_core.ops.sampling.noise import gumbel
from mstar_flashinfer.backend import FlashInferBackend

Renorm = Callable[[Tensor, Tensor], Tensor]


@frozen(kw_only=True, eq=False)
class Library:
    """What is used of FlashInfer's sampling."""

    top_k: Renorm
    """``top_k_renorm_probs``."""
    top_p: Renorm
    """``top_p_renorm_probs``."""


@frozen(kw_only=True, eq=False)
class Filters:
    """Draws with every filter applied."""

    library: Library

    def draw(self, x_BV: Tensor, plan: SamplePlan, draw: int) -> Tensor:
        """See :class:`~mstar_core.ops.sampling.reference.Draw`."""
        V = x_BV.shape[1]
        largest_B1 = x_BV.amax(-1, keepdim=True)
        sound_B1 = largest_B1.isfinite()  # a threshold among NaN may be searched for ever
        heat_B1 = plan.temperature_B.clamp_min(GREEDY_BELOW)[:, None]
        scaled_BV = torch.where(sound_B1, (x_BV - largest_B1) / heat_B1, 0)
        k_B = torch.where(plan.top_k_B > 0, plan.top_k_B, V).clamp_max(V).to(torch.int32)
        share_BV = scaled_BV.softmax(-1)
        keep_BV = self._top_k(share_BV, k_B)
        share_BV = torch.where(keep_BV, share_BV, 0)
        share_BV = share_BV / share_BV.sum(-1, keepdim=True)
        keep_BV = keep_BV & self._top_p(share_BV, plan.top_p_B)
        keep_BV = keep_BV & (share_BV >= plan.min_p_B[:, None] * share_BV.amax(-1, keepdim=True))
        ids_1V = torch.arange(V, dtype=torch.int32, device=x_BV.device)[None]
        noisy_BV = scaled_BV + gumbel(plan.seed_B, plan.position_B, draw, ids_1V)
        drawn_B = torch.where(keep_BV, noisy_BV, -torch.inf).argmax(-1)
        return torch.where(sound_B1[:, 0], drawn_B, x_BV.argmax(-1))

    def _top_k(self, share_BV: Tensor, k_B: Tensor) -> Tensor:
        """bool: the k largest, of equals those with the lower id."""
        above_BV, ties_BV, rank_BV, _ = _around(
            share_BV, _renormed(self.library.top_k, share_BV, k_B)
        )
        left_B1 = k_B[:, None] - above_BV.sum(-1, keepdim=True)
        return above_BV | (ties_BV & (rank_BV < left_B1))

    def _top_p(self, share_BV: Tensor, top_p_B: Tensor) -> Tensor:
        """bool: while the sum of what is before an id is below p; the first always."""
        renormed_BV = _renormed(self.library.top_p, share_BV, top_p_B)
        above_BV, ties_BV, rank_BV, edge_B1 = _around(share_BV, renormed_BV)
        before_BV = torch.where(above_BV, share_BV, 0).sum(-1, keepdim=True) + rank_BV * edge_B1
        p_B1 = top_p_B[:, None]
        first_BV = ~above_BV.any(-1, keepdim=True) & (rank_BV == 0)
        kept_BV = above_BV | (ties_BV & ((before_BV < p_B1) | first_BV))
        return kept_BV | (p_B1 >= 1)


def _renormed(renorm: Renorm, share_BV: Tensor, limit_B: Tensor) -> Tensor:
    out_BV = torch.empty_like(share_BV)
    launch(_into, renorm, share_BV, limit_B, out_BV)
    return out_BV


def _into(renorm: Renorm, share_BV: Tensor, limit_B: Tensor, out_BV: Tensor) -> None:
    out_BV.copy_(renorm(share_BV, limit_B))


def _around(share_BV: Tensor, renormed_BV: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What is above the least value that was kept, what equals it, its rank among those, itself."""
    least_B1 = torch.where(renormed_BV > 0, share_BV, torch.inf).amin(-1, keepdim=True)
    ties_BV = share_BV == least_B1
    return share_BV > least_B1, ties_BV, ties_BV.cumsum(-1) - 1, least_B1


class FlashInferSampling(FlashInferBackend):
    """Takes logits of any dtype: they are sampled in fp32."""

    operation = OPERATION

    def bind(self, request: BindRequest) -> Sampling:
        """The definition around the library's filters."""
        sample = partial(reference.sample, drawn=Filters(library=self.library()).draw)
        return Sampling(
            sample=sample,
            head_sample=partial(reference.head_sample, sample=sample),
            finite=reference.finite,
            enter=reference.enter,
            penalise=reference.penalise,
            count=reference.count,
        )

    def library(self) -> Library:
        """FlashInfer's own; imported here and not before."""
        found = import_module("flashinfer.sampling")
        return Library(top_k=found.top_k_renorm_probs, top_p=found.top_p_renorm_probs)


BACKEND = FlashInferSampling()
