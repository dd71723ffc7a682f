"""What attention kernels are launched with, which follows from shapes alone; and prompts."""

from __future__ import annotations

from typing import Any

import torch
import triton
from attrs import frozen
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.paged_attention import AttentionStep, PagedPlan
from mstar_core.ops.ragged_attention import RaggedPlan
from mstar_triton.attention.prefill_kernels import prefill_kernel, prepare_kernel
from mstar_triton.backend import AMD, FUSED

LOG2_E = 1.4426950408889634
"""Kernels take powers of two, so scores are scaled by this too."""
FEW_ROWS = 16
"""Prompts up to so many share a kernel: an eager step of a new count would wait for a compiler."""
Pools = tuple[Tensor, Tensor]


def pow2(n: int) -> int:
    """The power of two at or above ``n``."""
    return int(triton.next_power_of_2(n))


@frozen(kw_only=True)
class Heads:
    """The heads of one attention, and the tiles that suit them."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    wide: bool
    """fp32, whose products are exact and whose tiles are small."""
    max_tokens: int = 0
    """Tokens that a row may ever hold; 0: only a step's block table says."""

    @classmethod
    def of(cls, request: BindRequest) -> Heads:
        """Those of an attention's geometry."""
        names = ("num_heads", "num_kv_heads", "head_dim")
        sizes = {name: request.geometry[name] for name in names}
        most = request.geometry.get("max_tokens", 0)
        return cls(wide=request.dtype == torch.float32, max_tokens=most, **sizes)

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.num_heads // self.num_kv_heads

    @property
    def block_d(self) -> int:
        """Features of a tile; a product takes no fewer than 16."""
        return max(16, pow2(self.head_dim))

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        if self.wide or (AMD and self.block_d > 128):
            return 16 if self.block_d > 128 else 32
        return 32 if self.block_d > 128 else 64

    @property
    def rows(self) -> int:
        """Queries times heads of a prefill tile."""
        return max(16 if self.wide else 64, pow2(self.group))

    def options(self, stages: int) -> dict[str, Any]:
        """How a kernel is compiled."""
        return {
            "PRECISION": "ieee" if self.wide else "tf32",
            "num_warps": 4,
            "num_stages": 1 if self.wide or AMD else stages,
            **FUSED,
        }


def flat(x: Tensor) -> Tensor:
    """``x`` with its last axis contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def around(step: AttentionStep | None) -> tuple[Any, ...]:
    """``(q_norm, k_norm, cos, sin)``, each a tensor or None."""
    if step is None:
        return None, None, None, None
    cos, sin = step.rope or (None, None)
    return step.q_norm_D, step.k_norm_D, *(None if x is None else flat(x) for x in (cos, sin))


def prepare(
    heads: Heads, new: tuple[Tensor | None, Tensor | None, Tensor | None], pools: Pools,
    write_T: Tensor, step: AttentionStep | None,
) -> Tensor | None:  # fmt: skip
    """Queries normed and turned; keys, normed and turned, and values written to their cells.

    ``new`` is ``(q_TND, k_TGD, v_TGD)``, each of which may be None.
    """
    q, k, v = (None if x is None else flat(x) for x in new)
    norms = around(step)
    N, G, D = heads.num_heads, heads.num_kv_heads, heads.head_dim
    out = None if q is None else q.new_empty(q.shape)
    rot = 0 if norms[2] is None else norms[2].shape[-1]
    launch(
        prepare_kernel[(len(write_T),)],
        q, k, v, out, *pools, write_T, *norms, *strides(q), *strides(k), *strides(v),
        pools[0].stride(1), pools[0].stride(2), 1e-6 if step is None else step.eps,
        N=N, G=G, D=D, ROT=rot, BLOCK_N=pow2(N), BLOCK_G=pow2(G), BLOCK_D=heads.block_d,
        **FUSED,
    )  # fmt: skip
    return out


def strides(x_TND: Tensor | None) -> tuple[int, int]:
    """Of a token and of a head."""
    return (0, 0) if x_TND is None else (x_TND.stride(0), x_TND.stride(1))


def prefill(
    heads: Heads, q_TND: Tensor, kv: Pools, plan: PagedPlan | RaggedPlan, step: AttentionStep,
    out: Tensor,
) -> None:  # fmt: skip
    """All queries of rows that are not of the lead into ``out``; no norm and no rope.

    ``kv`` is the pools where ``plan`` has pages, else the keys and values of the packed tokens.
    """
    q, gate = flat(q_TND), None if step.gate_TND is None else flat(step.gate_TND)
    k, v = (flat(x) for x in kv)
    table: tuple[Any, ...] = (None, None, None)
    lead, width, page_tokens, axis = None, 0, 1, 0
    if hasattr(plan, "pages_BW"):
        table = (plan.pages_BW, plan.kv_lens_B, plan.before_B)
        lead, width, page_tokens = plan.num_lead_1, plan.pages_BW.stride(0), k.shape[1]
        axis = 1
    rows, group = len(plan.q_lens_B), pow2(heads.group)
    block_q = heads.rows // group
    launch(
        prefill_kernel[(-(-len(q) // block_q) + rows, heads.num_kv_heads)],
        q, k, v, gate, out, *table, plan.q_starts_B, plan.q_lens_B, lead,
        *strides(q), *strides(gate), k.stride(axis), k.stride(axis + 1), v.stride(axis),
        v.stride(axis + 1), width, page_tokens, step.scale * LOG2_E, rows,
        N=heads.num_heads, R=heads.group, D=heads.head_dim, CAUSAL=step.causal,
        BLOCK_Q=block_q, BLOCK_R=group, BLOCK_D=heads.block_d,
        BLOCK_S=heads.keys, BLOCK_B=max(FEW_ROWS, pow2(rows)), **heads.options(2),
    )  # fmt: skip
