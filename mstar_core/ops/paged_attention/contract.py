"""Contract of ``paged_attention``: queries of packed rows over keys and values in pages.

Pools are ``[P, p, G, D]``: P pages of p tokens, page 0 a sink that padding writes to and whose
content means nothing. The flat token slot of a position is ``page * p + offset``.

Every backend must hold:

* the shapes it computes with follow from the arguments' shapes and ``plan.max_q`` alone, and
  nothing is read back to the host;
* cells that a row may not read may hold anything, NaN included, and change nothing;
* a row with no readable keys gives zeros, a row without queries gives nothing, and tokens of a
  padding row give finite output;
* a row computed alone equals the same row among others within the tolerance;
* a lead may be run as a decode half and must give what its rows give packed; a backend that does
  not split ignores it, and says so (:attr:`PagedAttention.splits`).
"""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.ops.schedule import Schedule

OPERATION = "paged_attention"
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
"""Largest absolute and relative difference to the fp32 definition, by the dtype of q."""


class PagedPlan(Protocol):
    """What attention reads of a step's plan. Index tensors are int32 unless said otherwise."""

    @property
    def pages_BW(self) -> Tensor:
        """Block table: the pages of each row in order, padded with page 0."""

    @property
    def kv_lens_B(self) -> Tensor:
        """Readable tokens of each row, this step's own included."""

    @property
    def before_B(self) -> Tensor:
        """Absolute position of each row's first query: query c sees keys 0 .. before + c."""

    @property
    def q_starts_B(self) -> Tensor:
        """Index in T of each row's first query."""

    @property
    def q_lens_B(self) -> Tensor:
        """Queries of each row."""

    @property
    def row_T(self) -> Tensor:
        """The row of each token."""

    @property
    def col_T(self) -> Tensor:
        """The index of each token in its row."""

    @property
    def write_T(self) -> Tensor:
        """int64: the flat token slot that each token's key and value are written to."""

    @property
    def max_q(self) -> int:
        """Bound of ``q_lens_B``."""

    @property
    def decode(self) -> int:
        """1: T equals B and token i is row i's only query; then q_starts, q_lens, row, col rest."""

    @property
    def num_lead_1(self) -> Tensor | None:
        """int32 ``[1]``: rows of the lead (see :mod:`mstar_core.ops.lead`); None without one."""

    @property
    def lead_rows(self) -> int:
        """Bound of ``num_lead_1``, at most B and T; 0: no split."""

    @property
    def schedule(self) -> int:
        """What :attr:`PagedAttention.schedule` gave for the step; 0: it was not asked."""


@frozen(kw_only=True, eq=False)
class AttentionStep:
    """What a step does around attention. An absent part is left out."""

    scale: float
    causal: bool = True
    gate_TND: Tensor | None = None
    """Raw gate: the output is multiplied by its sigmoid."""
    q_norm_D: Tensor | None = None
    """Effective weight of the RMS norm over each query head, before rope."""
    k_norm_D: Tensor | None = None
    eps: float = 1e-6
    rope: tuple[Tensor, Tensor] | None = None
    """``(cos_TR, sin_TR)``, as :func:`mstar_core.ops.functional.rope_half_split` takes them."""


class Write(Protocol):
    """Put each token's key and value into its slot. Changes the two pools in place."""

    def __call__(
        self, k_TGD: Tensor, v_TGD: Tensor, k_PpGD: Tensor, v_PpGD: Tensor, write_T: Tensor
    ) -> None: ...


class Attend(Protocol):
    """``o_TND`` in q's dtype of q ``[T, N, D]`` over the pools; changes nothing.

    Query head n reads key head ``n // (N // G)``; softmax is in fp32.
    """

    def __call__(
        self,
        q_TND: Tensor,
        k_PpGD: Tensor,
        v_PpGD: Tensor,
        plan: PagedPlan,
        *,
        scale: float,
        causal: bool,
    ) -> Tensor: ...


class Step(Protocol):
    """q/k norm, rope, write, attend, gate: ``o_TND``. Changes the pools in place.

    ``k_TGD`` and ``v_TGD`` None: the pool is only read. ``pools`` is ``(k_PpGD, v_PpGD)``.
    """

    def __call__(
        self,
        q_TND: Tensor,
        k_TGD: Tensor | None,
        v_TGD: Tensor | None,
        pools: tuple[Tensor, Tensor],
        plan: PagedPlan,
        step: AttentionStep,
    ) -> Tensor: ...


@frozen(kw_only=True, eq=False)
class PagedAttention:
    """What a backend of ``paged_attention`` binds.

    Geometry of the request: ``num_heads``, ``num_kv_heads``, ``head_dim``, ``page_tokens``; and
    ``max_tokens``, which a row of the widest block table holds, where that is known: the table of a
    step that is not captured may be narrower.
    """

    step: Step
    attend: Attend
    write: Write
    splits: bool = False
    """A lead is run as a half of its own."""
    schedule: Schedule | None = None
    """Where eager steps are also planned on the host; captured steps never are."""
