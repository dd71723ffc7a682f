"""Contract of ``ragged_attention``: queries over the keys and values of the same packed row.

Nothing is kept. The rules of ``paged_attention`` hold: static shapes, no host reads, rows never
see each other (a row of NaN leaves the others as they are), zero-length rows give nothing.
"""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

OPERATION = "ragged_attention"
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
"""Largest absolute and relative difference to the fp32 definition, by the dtype of q."""


class RaggedPlan(Protocol):
    """What ragged attention reads of a step's plan; index tensors are int32."""

    @property
    def q_starts_B(self) -> Tensor:
        """Index in T of each row's first token."""

    @property
    def q_lens_B(self) -> Tensor:
        """Tokens of each row."""

    @property
    def row_T(self) -> Tensor:
        """The row of each token."""

    @property
    def col_T(self) -> Tensor:
        """The index of each token in its row."""

    @property
    def max_q(self) -> int:
        """Bound of ``q_lens_B``."""


class Attend(Protocol):
    """``o_TND`` in q's dtype of q ``[T, N, D]`` over k, v ``[T, G, D]``; changes nothing."""

    def __call__(
        self,
        q_TND: Tensor,
        k_TGD: Tensor,
        v_TGD: Tensor,
        plan: RaggedPlan,
        *,
        scale: float,
        causal: bool,
    ) -> Tensor: ...


@frozen(kw_only=True, eq=False)
class RaggedAttention:
    """What a backend of ``ragged_attention`` binds.

    Geometry of the request: ``num_heads``, ``num_kv_heads``, ``head_dim``.
    """

    attend: Attend
