"""The delta rule of a step by FlashInfer's kernels: keys last, decays and not their logarithms.

::

    prefill   states of the rows gathered → chunk_gated_delta_rule → scattered
    decode    gated_delta_rule_decode_pretranspose over the pool, by slot; versions that take no
              fp32 pool: gathered and scattered
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.gated_delta import GdnWeights
from mstar_core.ops.gated_delta.reference import heads_of, streams_of
from mstar_core.ops.gated_delta.rows import Rows, gathered, scatter, slots_in_place

Given = Mapping[str, Tensor]
"""What a kernel reads of the step, by the library's names."""
Kernel = Callable[[Given, Tensor, Tensor, Tensor], None]
"""Of what it reads, states before, states behind, outputs."""


@frozen(kw_only=True, eq=False)
class Library:
    """What is used of FlashInfer's gated delta rule."""

    prefill: Callable[..., Any]
    """``chunk_gated_delta_rule``."""
    decode: Callable[..., Any]
    """``gated_delta_rule_decode_pretranspose``."""

    @property
    def takes_pool(self) -> bool:
        """Decode reads and writes an fp32 pool by slot (0.6.18 and later)."""
        return "output_state_indices" in inspect.signature(self.decode).parameters


@frozen(kw_only=True, eq=False)
class DeltaRule:
    """The inner part of the operation."""

    library: Library
    dtype: torch.dtype
    by_slot: bool

    def recur(
        self,
        mixed_TC: Tensor,
        b_TH: Tensor,
        a_TH: Tensor,
        weights: GdnWeights,
        ssm_SHDE: Tensor,
        rows: Rows,
    ) -> Tensor:
        """See :class:`~mstar_core.ops.gated_delta.reference.Recur`; the pool is K_LAST."""
        S, H, D, E = ssm_SHDE.shape
        pool_SHED = ssm_SHDE.view(S, H, E, D)
        if rows.decode:
            out_THE = self._out(mixed_TC, H, E)
            given = self._one_token(mixed_TC, b_TH, a_TH, weights, ssm_SHDE.shape[1:])
            if not self.by_slot:
                self._gathered(pool_SHED, rows, self._decode_states, given, out_THE)
                return out_THE
            slots_B = rows.slots_B.to(torch.int32)
            with slots_in_place(pool_SHED, rows):
                launch(self._decode_pool, given, pool_SHED, slots_B, out_THE)
            return out_THE
        streams = streams_of(mixed_TC, b_TH, a_TH, weights, ssm_SHDE.shape[1:])
        at_T, bounds_B = one_more(rows)
        q, k, v = (spread(x.to(self.dtype), at_T, rows) for x in (streams.q, streams.k, streams.v))
        decay, beta = spread(streams.g, at_T, rows).exp(), spread(streams.beta, at_T, rows)
        given = {"q": q, "k": k, "v": v, "g": decay, "beta": beta, "cu_seqlens": bounds_B}
        longer_THE = self._out(q, H, E)
        self._gathered(pool_SHED, rows, self._chunks, given, longer_THE)
        return longer_THE[at_T]

    def _gathered(
        self, pool_SHED: Tensor, rows: Rows, kernel: Kernel, given: Given, out_THE: Tensor
    ) -> None:
        """``kernel`` from the rows' states to those behind the step, scattered where live."""
        held_BHED, before_BHED = gathered(pool_SHED, rows)
        after_BHED = torch.empty_like(before_BHED)
        launch(kernel, given, before_BHED, after_BHED, out_THE)
        scatter(pool_SHED, rows, after_BHED, held_BHED)

    def _out(self, mixed_TC: Tensor, H: int, E: int) -> Tensor:
        return torch.empty(len(mixed_TC), H, E, dtype=self.dtype, device=mixed_TC.device)

    def _chunks(
        self, given: Given, before_BHED: Tensor, after_BHED: Tensor, out_THE: Tensor
    ) -> None:
        self.library.prefill(
            **given,
            scale=1.0,  # it is in the queries
            initial_state=before_BHED,
            output_final_state=True,
            output=out_THE,
            output_state=after_BHED,
        )

    def _decode_states(
        self, given: Given, before_BHED: Tensor, after_BHED: Tensor, out_BHE: Tensor
    ) -> None:
        after_BHED.copy_(before_BHED)
        self._decode(given, out_BHE, state=after_BHED)

    def _decode_pool(
        self, given: Given, pool_SHED: Tensor, slots_B: Tensor, out_BHE: Tensor
    ) -> None:
        states = {"initial_state": pool_SHED, "initial_state_indices": slots_B}
        self._decode(given, out_BHE, state=None, **states)

    def _decode(self, given: Given, out_BHE: Tensor, **states: Tensor | None) -> None:
        found, _ = self.library.decode(**given, **states, scale=given["q"].shape[-1] ** -0.5)
        out_BHE.copy_(found[:, 0])

    def _one_token(
        self, mixed_BC: Tensor, b_BH: Tensor, a_BH: Tensor, weights: GdnWeights, sizes: torch.Size
    ) -> dict[str, Tensor]:
        """Heads as they leave the convolution and raw gates: the kernel norms and gates them."""
        q_BGD, k_BGD, v_BHE = heads_of(mixed_BC, sizes)
        return {
            "q": by_itself(q_BGD, self.dtype),
            "k": by_itself(k_BGD, self.dtype),
            "v": by_itself(v_BHE, self.dtype),
            "A_log": weights.A_log_H.float(),
            "a": by_itself(a_BH, self.dtype),
            "dt_bias": weights.dt_bias_H.float(),
            "b": by_itself(b_BH, self.dtype),
        }


def by_itself(x_B: Tensor, dtype: torch.dtype) -> Tensor:
    """``[B, 1, …]`` in memory of its own.

    The kernel is compiled for addresses that divide by 16, and what is cut from a wider tensor
    may lie anywhere, though a single row of it counts as contiguous.
    """
    out_B1 = torch.empty(len(x_B), 1, *x_B.shape[1:], dtype=dtype, device=x_B.device)
    return out_B1.copy_(x_B[:, None])


def one_more(rows: Rows) -> tuple[Tensor, Tensor]:
    """Where each token goes when every row gets one more, and the bounds of the rows then.

    The prefill kernel never ends over a row without tokens. The token that is added is zero: it
    forgets nothing and writes nothing.
    """
    T, B, device = len(rows.row_T), len(rows.slots_B), rows.row_T.device
    at_T = torch.arange(T, device=device) + rows.row_T
    ends_B1 = torch.cat([rows.q_starts_B.long(), torch.full((1,), T, device=device)])
    return at_T, ends_B1 + torch.arange(B + 1, device=device)


def spread(x: Tensor, at_T: Tensor, rows: Rows) -> Tensor:
    """``x`` ``[T, …]`` at its places among ``T + B``, zero elsewhere."""
    longer = x.new_zeros(len(x) + len(rows.slots_B), *x.shape[1:])
    return longer.index_copy_(0, at_T, x)
