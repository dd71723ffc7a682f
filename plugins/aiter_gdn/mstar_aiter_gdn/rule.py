"""The delta rule of a step by AITER's kernels.

::

    decode             FlyDSL, over the pool by slot           keys last; it gates and norms
    prompts, eager     chunk_gated_delta_rule_opt_vk           keys last, by slot; a schedule of the
                                                               chunks, made once a step on the host
    prompts, captured  fused_recurrent_gated_delta_rule        values last, states gathered
    decode that FlyDSL has no tiling for: the same

Both kernels of prompts take the logarithm of the decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.gated_delta import GdnWeights
from mstar_core.ops.gated_delta.reference import Streams, heads_of, streams_of
from mstar_core.ops.gated_delta.rows import Rows, gathered, live, scatter, slots_in_place
from mstar_core.ops.schedule import Schedules

CHUNK = 64
TILE = 32
"""Features that FlyDSL's threads take at once, of keys and of values."""

Kernel = Callable[..., Any]


@frozen(kw_only=True, eq=False)
class Library:
    """What is used of AITER and FlyDSL."""

    chunks: Kernel
    """``chunk_gated_delta_rule_opt_vk``."""
    sequential: Kernel
    """``fused_recurrent_gated_delta_rule``."""
    schedule: Kernel
    """``build_gated_delta_rule_prefill_metadata``."""
    decode: Kernel | None
    """``flydsl_gdr_decode``; None where FlyDSL is not installed."""


@define(eq=False)
class Chunks:
    """The rows' lengths of one eager step, and AITER's schedule once it is made."""

    lens: Sequence[int]
    _made: Any = field(default=None, init=False)

    def schedule(self, build: Kernel, bounds_B: Tensor) -> Any:
        """Made by the first layer, used by all."""
        if self._made is None:
            self._made = build(self.lens, cu_seqlens=bounds_B, chunk_size=CHUNK)
        return self._made


@define(kw_only=True, eq=False)
class DeltaRule:
    """The inner part of the operation."""

    library: Library
    dtype: torch.dtype
    steps: Schedules[Chunks] = field(factory=Schedules)

    def schedule(self, plan: Any) -> int:
        """See :class:`~mstar_core.ops.schedule.Schedule`."""
        bounds = [*plan.q_starts_B.tolist(), len(plan.row_T)]
        lens = [end - start for start, end in pairwise(bounds)]
        return self.steps.keep(Chunks(lens))

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
        if rows.decode and self.tiles(D, E):
            given = self._one_token(mixed_TC, b_TH, a_TH, weights, ssm_SHDE.shape[1:])
            return self._decoded(given, pool_SHED, rows)
        streams = streams_of(mixed_TC, b_TH, a_TH, weights, ssm_SHDE.shape[1:])
        chunks = None if rows.decode else self.steps.of(rows.schedule)
        if chunks is None:
            return self._one_by_one(streams, pool_SHED, rows)
        return self._by_chunks(streams, pool_SHED, rows, chunks)

    def tiles(self, D: int, E: int) -> bool:
        """Whether FlyDSL is there and has a tiling; its scale is ours, the root of the width."""
        return self.library.decode is not None and D % TILE == 0 and E % TILE == 0

    def _decoded(self, given: Mapping[str, Tensor], pool_SHED: Tensor, rows: Rows) -> Tensor:
        out_B1HE = torch.empty_like(given["value"])
        with slots_in_place(pool_SHED, rows):
            launch(self._decode, given, pool_SHED, rows.slots_B.to(torch.int32), out_B1HE)
        return out_B1HE[:, 0]

    def _decode(
        self, given: Mapping[str, Tensor], pool_SHED: Tensor, slots_B: Tensor, out_B1HE: Tensor
    ) -> None:
        if self.library.decode is not None:
            self.library.decode(
                **given,
                indices=slots_B,
                state=pool_SHED,
                out=out_B1HE,
                use_qk_l2norm=True,
                need_shuffle_state=False,
            )

    def _by_chunks(self, streams: Streams, pool_SHED: Tensor, rows: Rows, chunks: Chunks) -> Tensor:
        """Rows that change no slot are let loose on slot 0, which is put back behind them."""
        bounds_B = bounds_of(rows)
        made = chunks.schedule(self.library.schedule, bounds_B)
        slots_B = torch.where(live(rows), rows.slots_B, 0).to(torch.int32)
        with slots_in_place(pool_SHED, rows):
            o_1THE, _ = self.library.chunks(
                **self._packed(streams),
                cu_seqlens=bounds_B,
                initial_state=pool_SHED,
                initial_state_indices=slots_B,
                output_final_state=True,
                state_dtype=pool_SHED.dtype,
                prefill_metadata=made,
            )
        out_THE: Tensor = o_1THE[0]
        return out_THE

    def _one_by_one(self, streams: Streams, pool_SHED: Tensor, rows: Rows) -> Tensor:
        held_BHED, before_BHED = gathered(pool_SHED, rows)
        before_BHDE = before_BHED.transpose(-1, -2).contiguous()
        after_BHDE = torch.empty_like(before_BHDE)
        given = self._packed(streams) | {"cu_seqlens": bounds_of(rows)}
        out_1THE = torch.empty_like(given["v"])
        launch(self._sequential, given, before_BHDE, after_BHDE, out_1THE)
        scatter(pool_SHED, rows, after_BHDE.transpose(-1, -2), held_BHED)
        return out_1THE[0]

    def _sequential(
        self,
        given: Mapping[str, Any],
        before_BHDE: Tensor,
        after_BHDE: Tensor,
        out_1THE: Tensor,
    ) -> None:
        o, after = self.library.sequential(
            **given, initial_state=before_BHDE, output_final_state=True
        )
        out_1THE.copy_(o)
        after_BHDE.copy_(after)

    def _packed(self, streams: Streams) -> dict[str, Any]:
        """One sequence of all rows; queries and keys are normed, the scale is in the queries."""
        heads = {name: getattr(streams, name).to(self.dtype)[None] for name in ("q", "k", "v")}
        gates = {"g": streams.g[None], "beta": streams.beta[None]}
        return {**heads, **gates, "scale": 1.0, "use_qk_l2norm_in_kernel": False}

    def _one_token(
        self, mixed_BC: Tensor, b_BH: Tensor, a_BH: Tensor, weights: GdnWeights, sizes: torch.Size
    ) -> dict[str, Tensor]:
        """Heads as they leave the convolution and raw gates: the kernel norms and gates them."""
        heads = heads_of(mixed_BC.to(self.dtype), sizes)
        q_B1GD, k_B1GD, v_B1HE = (x[:, None].contiguous() for x in heads)
        return {
            "query": q_B1GD,
            "key": k_B1GD,
            "value": v_B1HE,
            "a": a_BH[:, None].to(self.dtype).contiguous(),
            "b": b_BH[:, None].to(self.dtype).contiguous(),
            "dt_bias": weights.dt_bias_H.to(self.dtype),
            "A_log": weights.A_log_H.float(),
        }


def bounds_of(rows: Rows) -> Tensor:
    """int64 ``[B + 1]``: each row's first token, and the end; of decode rows one token each."""
    if rows.decode:
        return torch.arange(len(rows.slots_B) + 1, device=rows.slots_B.device)
    end_1 = torch.full_like(rows.q_starts_B[:1], len(rows.row_T))
    return torch.cat([rows.q_starts_B, end_1]).long()
