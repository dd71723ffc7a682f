"""A history of penalty rows, and the slow obvious answer."""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.ops.cases import normal, seeded
from mstar_core.ops.sampling.contract import PenaltyRows

VOCAB = 20
ROWS = 5


@frozen(kw_only=True)
class Request:
    """One request's penalties. ``row`` 0 is for requests without any."""

    row: int
    prompt: tuple[int, ...] = ()
    generated: tuple[int, ...] = ()
    bias: tuple[tuple[int, float], ...] = ()
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0


REQUESTS = (
    Request(row=3, prompt=(1, 2, 2, 9), generated=(4, 4, 1), repetition=1.5),
    Request(row=0),
    Request(row=1, prompt=(0,), generated=(5, 5, 5, 6), presence=0.7, frequency=-0.4),
    Request(row=4, bias=((7, 100.0), (8, -100.0)), generated=(7,)),
    Request(
        row=2, prompt=(19,), bias=((19, 3.0),), generated=(19, 0, 3), repetition=0.5, presence=2
    ),
)


@frozen(kw_only=True, eq=False)
class CasePlan:
    """A step's plan, as the protocols of :mod:`mstar_core.ops.sampling.plans` read it."""

    penalty_row_B: Tensor
    repetition_B: Tensor
    presence_B: Tensor
    frequency_B: Tensor
    fresh_row_B: Tensor
    prompt_row_K: Tensor
    prompt_ids_K: Tensor
    bias_row_K: Tensor
    bias_ids_K: Tensor
    bias_K: Tensor


@frozen(kw_only=True, eq=False)
class Inputs:
    """Logits of the requests' rows, the pool, and the plan of their first step."""

    logits_BV: Tensor
    rows: PenaltyRows
    plan: CasePlan


def lay(garbage: bool = True, spare: int = 3) -> Inputs:
    """In memory, on the CPU. With ``garbage`` rows still hold what others left; row 0 is zero.

    The flat lists end in ``spare`` entries of padding.
    """
    prompts = [(r.row, i) for r in REQUESTS for i in r.prompt] + [(0, 5)] * spare
    biases = [(r.row, i, b) for r in REQUESTS for i, b in r.bias] + [(0, 6, 9.0)] * spare
    rows = PenaltyRows(
        prompt_RV=torch.full((ROWS, VOCAB), garbage),
        count_RV=torch.full((ROWS, VOCAB), 3 * garbage, dtype=torch.int32),
        bias_RV=torch.full((ROWS, VOCAB), 50.0 * garbage),
    )
    for table in (rows.prompt_RV, rows.count_RV, rows.bias_RV):
        table[0] = 0
    logits = normal(seeded("penalties"), len(REQUESTS), VOCAB)
    logits[:, 12] = float("-inf")
    return Inputs(
        logits_BV=logits,
        rows=rows,
        plan=CasePlan(
            penalty_row_B=torch.tensor([r.row for r in REQUESTS]),
            repetition_B=torch.tensor([r.repetition for r in REQUESTS]),
            presence_B=torch.tensor([r.presence for r in REQUESTS]),
            frequency_B=torch.tensor([r.frequency for r in REQUESTS]),
            fresh_row_B=torch.tensor([r.row for r in REQUESTS]),
            prompt_row_K=torch.tensor([row for row, _ in prompts]),
            prompt_ids_K=torch.tensor([i for _, i in prompts]),
            bias_row_K=torch.tensor([row for row, _, _ in biases]),
            bias_ids_K=torch.tensor([i for _, i, _ in biases]),
            bias_K=torch.tensor([b for _, _, b in biases]),
        ),
    )


def generated_step(step: int) -> Tensor:
    """int64: the id that each request generates at ``step``; -1 where it has generated all."""
    ids = [r.generated[step] if step < len(r.generated) else -1 for r in REQUESTS]
    return torch.tensor(ids)


def oracle(logits_V: Tensor, request: Request) -> Tensor:
    """The penalised logits of one request, one id at a time."""
    bias, out = dict(request.bias), logits_V.clone()
    for i in range(len(out)):
        x, count = float(logits_V[i]) + bias.get(i, 0.0), request.generated.count(i)
        if count or i in request.prompt:
            x = x / request.repetition if x > 0 else x * request.repetition
        out[i] = x - request.frequency * count - request.presence * (count > 0)
    return out
