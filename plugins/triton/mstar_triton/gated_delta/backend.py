"""``gated_delta``: a decode step is one or two kernels, a prefill step four."""

from __future__ import annotations

import torch
from attrs import field, frozen
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.gated_delta import GatedDelta, GatedDeltaRows, GdnPools, GdnWeights
from mstar_core.ops.gated_delta.contract import OPERATION
from mstar_core.ops.gated_delta.limits import beyond_silu
from mstar_triton.backend import Cells, TritonBackend
from mstar_triton.gated_delta.launches import Projections, Sizes, decode
from mstar_triton.gated_delta.prefill_launches import prefill

WIDEST = 128
"""Key and value features of a head."""


@frozen(kw_only=True)
class Mixer:
    """The operation for heads of one size."""

    sizes: Sizes
    cells: Cells = field(factory=Cells)

    def step(
        self,
        qkv_TC: Tensor,
        z_TV: Tensor,
        b_TH: Tensor,
        a_TH: Tensor,
        weights: GdnWeights,
        pools: GdnPools,
        plan: GatedDeltaRows,
    ) -> Tensor:
        """See :class:`~mstar_core.ops.gated_delta.contract.Step`."""
        x = Projections.of(qkv_TC, z_TV, b_TH, a_TH)
        out_TV = torch.empty(z_TV.shape, dtype=qkv_TC.dtype, device=qkv_TC.device)
        if plan.decode or plan.num_lead_1 is not None:
            decode(self.sizes, x, weights, pools, plan, self.cells, out_TV)
        if not plan.decode:
            prefill(self.sizes, x, weights, pools, plan, out_TV)
        return out_TV


class TritonGatedDelta(TritonBackend):
    """Keeps the state as the contract lays it out; leaves no checkpoints along a prefill."""

    operation = OPERATION

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses checkpoints, activations other than silu, and heads wider than 128."""
        sizes, fix = request.geometry, "choose another backend"
        width = max(sizes["k_dim"], sizes["v_dim"])
        if width > WIDEST:
            return self.refusal("head-dim", f"heads of {width}", f"at most {WIDEST}", fix)
        return beyond_silu(self, request) or super().supports(request)

    def bind(self, request: BindRequest) -> GatedDelta:
        """The step, for the heads of the request."""
        names = ("num_k_heads", "num_v_heads", "k_dim", "v_dim", "conv_taps")
        sizes = Sizes(**{name: request.geometry[name] for name in names})
        return GatedDelta(step=Mixer(sizes=sizes).step, splits=True, snapshots=True)


BACKEND = TritonGatedDelta()
