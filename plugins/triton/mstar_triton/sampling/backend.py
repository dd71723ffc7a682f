"""``sampling``: greedy rows in one pass over their logits; penalties are torch's.

Drawn rows and the likeliest ids beside the chosen one are the definition's.
"""

from __future__ import annotations

import torch
import triton
from attrs import evolve
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.sampling import Sampled, SamplePlan, Sampling, reference
from mstar_core.ops.sampling.contract import OPERATION
from mstar_triton.backend import FUSED, PROGRAMS, TritonBackend
from mstar_triton.linear.backend import linear
from mstar_triton.sampling.greedy_kernels import settle_kernel, survey_kernel

BLOCK = 2048
"""Ids that a program looks at together."""


def survey(logits_BV: Tensor) -> tuple[Sampled, Tensor]:
    """The likeliest id of each row, and the log of the sum of its exponentials, fp32 ``[B]``."""
    B, V = logits_BV.shape
    x = logits_BV if logits_BV.stride(-1) == 1 else logits_BV.contiguous()
    span = max(1, triton.cdiv(V, BLOCK * max(1, 4 * PROGRAMS // max(1, B)))) * BLOCK
    spans, device = triton.cdiv(V, span), x.device
    floats = torch.empty((2, B, spans), dtype=torch.float32, device=device)
    whole = torch.empty((2, B, spans), dtype=torch.int32, device=device)
    ids_B = torch.empty(B, dtype=torch.int64, device=device)
    logprob_B, log_total_B = (torch.empty(B, dtype=torch.float32, device=device) for _ in range(2))
    finite_B = torch.empty(B, dtype=torch.bool, device=device)
    parts = (floats[0], whole[0], floats[1], whole[1])
    launch(
        survey_kernel[(B, spans)],
        x, *parts, x.stride(0), V, SPAN=span, BLOCK=BLOCK, num_warps=4, **FUSED,
    )  # fmt: skip
    launch(
        settle_kernel[(B,)],
        *parts, ids_B, logprob_B, log_total_B, finite_B, V,
        SPANS=spans, BLOCK=int(triton.next_power_of_2(spans)), num_warps=1, **FUSED,
    )  # fmt: skip
    return Sampled(ids_B=ids_B, logprob_B=logprob_B, finite_B=finite_B), log_total_B


def sample(
    logits_BV: Tensor, plan: SamplePlan, *, finite_B: Tensor | None = None, draw: int = 0
) -> Sampled:
    """See :class:`~mstar_core.ops.sampling.contract.Sample`."""
    if plan.sampled or plan.top_logprobs or not len(logits_BV):
        return reference.sample(logits_BV, plan, finite_B=finite_B, draw=draw)
    found, _ = survey(logits_BV)
    return found if finite_B is None else evolve(found, finite_B=finite_B)


def head_sample(
    hidden_BH: Tensor, weight_VH: Tensor, plan: SamplePlan, *, draw: int = 0
) -> Sampled:
    """See :class:`~mstar_core.ops.sampling.contract.HeadSample`."""
    return sample(linear(hidden_BH, weight_VH), plan, draw=draw)


class TritonSampling(TritonBackend):
    """Takes logits of every dtype that the others take."""

    operation = OPERATION

    def bind(self, request: BindRequest) -> Sampling:
        """The functions above, and the definition's penalties."""
        return Sampling(
            sample=sample,
            head_sample=head_sample,
            finite=reference.finite,
            enter=reference.enter,
            penalise=reference.penalise,
            count=reference.count,
        )


BACKEND = TritonSampling()
