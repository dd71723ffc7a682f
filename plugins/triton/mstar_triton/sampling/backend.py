"""``sampling``: the likeliest id in one pass, a drawn one in a few more.

Penalties, and the likeliest ids beside the chosen one, are torch's.
"""

from __future__ import annotations

import torch
import triton
from attrs import evolve
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.sampling import Sampled, SamplePlan, Sampling, reference
from mstar_core.ops.sampling.contract import GREEDY_BELOW, LEAST_LOGPROB, OPERATION
from mstar_triton.backend import FUSED, TritonBackend, early
from mstar_triton.linear.backend import Products
from mstar_triton.sampling.draw_kernels import draw_kernel
from mstar_triton.sampling.greedy_kernels import settle_kernel, survey_kernel

PRODUCTS = Products()
FEW_ROWS = 4
DRAW_BLOCK = 4096
"""Ids that a program looks at together which has a whole row to itself."""


def survey(x_BV: Tensor) -> tuple[Sampled, Tensor]:
    """The likeliest id of each row, and the log of the sum of its exponentials, fp32 ``[B]``."""
    (B, V), device = x_BV.shape, x_BV.device
    tile = survey_tile(B)
    blocks = triton.cdiv(V, tile["BLOCK"])
    floats = torch.empty((2, B, blocks), dtype=torch.float32, device=device)
    whole = torch.empty((2, B, blocks), dtype=torch.int32, device=device)
    found, log_total_B = told(B, device), torch.empty(B, dtype=torch.float32, device=device)
    parts = (floats[0], whole[0], floats[1], whole[1])
    launch(
        survey_kernel[(B, blocks)],
        x_BV, *parts, x_BV.stride(0), V, **tile, **early(x_BV), **FUSED,
    )  # fmt: skip
    launch(
        settle_kernel[(B,)],
        *parts, found.ids_B, found.logprob_B, log_total_B, found.finite_B, V,
        LEAST=LEAST_LOGPROB, BLOCKS=blocks, BLOCK=int(triton.next_power_of_2(blocks)),
        num_warps=1, **early(x_BV), **FUSED,
    )  # fmt: skip
    return found, log_total_B


def told(rows: int, device: torch.device) -> Sampled:
    """What is found of rows, unwritten, end to end: the host reads all of it at once."""
    block = torch.empty(13 * rows, dtype=torch.uint8, device=device)
    ids, logprob, finite = block.split((8 * rows, 4 * rows, rows))
    return Sampled(
        ids_B=ids.view(torch.int64),
        logprob_B=logprob.view(torch.float32),
        finite_B=finite.view(torch.bool),
    )


def survey_tile(rows: int) -> dict[str, int]:
    """How many ids a program looks at: of few rows fewer, so that more programs do."""
    if rows <= FEW_ROWS:
        return {"BLOCK": 1024, "num_warps": 4}
    return {"BLOCK": 2048, "num_warps": 2}


def draw_over(
    found: Sampled, log_total_B: Tensor, x_BV: Tensor, plan: SamplePlan, draw: int
) -> None:
    """Replace the id and log probability of every row that is not greedy."""
    settings = (plan.temperature_B, plan.top_k_B, plan.top_p_B, plan.min_p_B)
    keys = (plan.seed_B, plan.position_B)
    small = x_BV.shape[1] <= DRAW_BLOCK // 2
    block, warps = (DRAW_BLOCK // 2, 4) if small else (DRAW_BLOCK, 16)
    launch(
        draw_kernel[(len(x_BV),)],
        x_BV, *settings, *keys, log_total_B, found.ids_B, found.logprob_B,
        *(x.stride(0) for x in (*settings, *keys)), x_BV.stride(0), x_BV.shape[1], draw,
        GREEDY_BELOW=GREEDY_BELOW, LEAST_LOGPROB=LEAST_LOGPROB, BLOCK=block, num_warps=warps,
        **FUSED,
    )  # fmt: skip


def sample(
    logits_BV: Tensor, plan: SamplePlan, *, finite_B: Tensor | None = None, draw: int = 0
) -> Sampled:
    """See :class:`~mstar_core.ops.sampling.contract.Sample`."""
    x_BV = logits_BV if logits_BV.stride(-1) == 1 else logits_BV.contiguous()
    found, log_total_B = survey(x_BV)
    if plan.sampled:
        draw_over(found, log_total_B, x_BV, plan, draw)
    if finite_B is not None:
        found = evolve(found, finite_B=finite_B)
    if plan.top_logprobs:
        top_BK, ids_BK = x_BV.float().topk(min(plan.top_logprobs, x_BV.shape[1]), -1)
        logprobs_BK = (top_BK - log_total_B[:, None]).clamp_min(LEAST_LOGPROB)
        found = evolve(found, top_ids_BK=ids_BK, top_logprobs_BK=logprobs_BK)
    return found


def head_sample(
    hidden_BH: Tensor, weight_VH: Tensor, plan: SamplePlan, *, draw: int = 0
) -> Sampled:
    """See :class:`~mstar_core.ops.sampling.contract.HeadSample`."""
    return sample(PRODUCTS.linear(hidden_BH, weight_VH), plan, draw=draw)


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
