"""Contract of ``gated_delta``: one layer from its projections to its gated norm.

Here G is key heads, H value heads (value head h uses key head ``h // (H // G)``), D the key width,
E the value width, C = 2·G·D + H·E channels in the order q | k | v, K convolution taps. For every
token, with the row's state ``S [H, D, E]``::

    y = silu(sum_j conv[:, j] · qkv[t - (K - 1) + j])     zeros before the stream's start
    q = l2(q) / sqrt(D),  k = l2(k),  beta = sigmoid(b)
    g = -exp(A_log) · softplus(a + dt_bias)               the *log* of the decay, fp32, <= 0
    S = exp(g) · S;  S = S + k (beta · (v - Sᵀ k))ᵀ;  o = Sᵀ q
    out = rms_norm(o) · norm · silu(z)

All of it is fp32 inside; the result is cast after the gated norm, because o itself may pass the
range of fp16. A backend whose kernel takes the decay itself computes ``exp(g)`` on its side.

State is kept per slot: the last K - 1 inputs of the convolution (model dtype) and S (fp32). Every
backend must hold:

* a fresh row starts from zero by *select*: whatever the slot held, NaN included, is gone;
* slot 0 belongs to padding rows: it is never changed, and their output is finite;
* a row of length zero leaves its slot as it is, to the bit;
* lengths need not be multiples of any block, and a stream cut anywhere (also shorter than the
  window) gives the outputs and state of the uncut stream;
* slot times stride is computed in int64;
* a lead may be run as a decode half and must give what its rows give packed, outputs and state; the
  halves leave each other's slots alone; a backend that does not split ignores it, and says so
  (:attr:`GatedDelta.splits`);
* prefill and decode agree on the state layout, which :attr:`GatedDelta.layout` names.
"""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.ops.schedule import Schedule

OPERATION = "gated_delta"
LAYOUT = "conv_SCK.ssm_SHDE"
"""State layout of the definition: windows ``[S, C, K-1]``, newest last; states ``[S, H, D, E]``."""
K_LAST = "conv_SCK.ssm_SHED"
"""The same with each state transposed in its place: ``[S, H, E, D]``, keys last."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
"""Largest absolute and relative difference to the fp32 definition, by the dtype of qkv."""


@frozen(kw_only=True, eq=False)
class GdnWeights:
    """Weights of one layer, in the dtype they are stored in."""

    conv_CK: Tensor
    """Depthwise taps; the last one meets the newest token."""
    A_log_H: Tensor
    dt_bias_H: Tensor
    norm_D: Tensor
    """Plain weight of the output norm over the value width, shared by heads."""
    eps: float = 1e-6


@frozen(kw_only=True, eq=False)
class GdnPools:
    """State of one layer for all slots; slot 0 is the null slot."""

    conv_SCK: Tensor
    """``[S, C, K - 1]``: inputs of the convolution before the next token, newest last."""
    ssm_SHDE: Tensor
    """``[S, H, D, E]`` fp32."""


class GatedDeltaRows(Protocol):
    """What the operation reads of a step's plan."""

    @property
    def slots_B(self) -> Tensor:
        """int64: the slot of each row; 0 for padding rows."""

    @property
    def fresh_B(self) -> Tensor:
        """bool: the row starts from zero."""

    @property
    def q_starts_B(self) -> Tensor:
        """int32: index in T of each row's first token."""

    @property
    def q_lens_B(self) -> Tensor:
        """int32: tokens of each row."""

    @property
    def row_T(self) -> Tensor:
        """int32: the row of each token."""

    @property
    def col_T(self) -> Tensor:
        """int32: the index of each token in its row."""

    @property
    def max_q(self) -> int:
        """Bound of ``q_lens_B``."""

    @property
    def decode(self) -> int:
        """1: T equals B and token i is row i's only one; then only slots and fresh are read."""

    @property
    def num_lead_1(self) -> Tensor | None:
        """int32 ``[1]``: rows of the lead (see :mod:`mstar_core.ops.lead`); None without one."""

    @property
    def lead_rows(self) -> int:
        """Bound of ``num_lead_1``, at most B and T; 0: no split."""

    @property
    def schedule(self) -> int:
        """What :attr:`GatedDelta.schedule` gave for the step; 0: it was not asked."""


class Step(Protocol):
    """``o_TV`` ``[T, H·E]`` in the dtype of ``qkv_TC``. Changes the two pools in place, by slot.

    ``qkv_TC`` ``[T, C]`` and ``z_TV`` ``[T, H·E]`` in the model's dtype, ``b_TH`` and ``a_TH``
    ``[T, H]``.
    """

    def __call__(
        self,
        qkv_TC: Tensor,
        z_TV: Tensor,
        b_TH: Tensor,
        a_TH: Tensor,
        weights: GdnWeights,
        pools: GdnPools,
        plan: GatedDeltaRows,
    ) -> Tensor: ...


@frozen(kw_only=True, eq=False)
class GatedDelta:
    """What a backend of ``gated_delta`` binds.

    Geometry of the request: ``num_k_heads``, ``num_v_heads``, ``k_dim``, ``v_dim``, ``conv_taps``,
    ``activation`` (``silu``), and ``checkpoint_every``: None, or the number of tokens after which
    prefill also leaves a copy of the state (a backend may refuse it).
    """

    step: Step
    layout: str = LAYOUT
    """A tag: two backends may share a pool only where their tags are equal."""
    splits: bool = False
    """A lead is run as a half of its own."""
    snapshots: bool = False
    """What a step leaves in a row's slot is all its state: a copy of the slot is a snapshot."""
    schedule: Schedule | None = None
    """Where eager steps are also planned on the host; captured steps never are."""
