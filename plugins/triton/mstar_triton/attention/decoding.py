"""A decode step: how many programs share a row's keys, and their one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.paged_attention import AttentionStep, PagedPlan
from mstar_triton.attention.decode_kernels import decode_kernel
from mstar_triton.attention.launches import LOG2_E, Heads, Pools, around, flat, pow2, strides
from mstar_triton.backend import FUSED, Cells, early

PROGRAMS = 528
"""Programs that fill a device: as many as the 132 multiprocessors of an H200 hold at once."""
MAX_SPLITS = 64
SPLIT_TOKENS = 4096
"""A program of a decode step reads no more keys of a full table than this, up to MAX_SPLITS."""


def splits_for(rows: int, kv_heads: int, tokens: int, block: int) -> int:
    """How many programs share a row's keys: enough to fill a device, none without a tile of work.

    ``tokens`` is what a row may ever hold: how long rows are is not known here, and a table of a
    step that is not captured is only as wide as its rows. Parts are summed in the same order in
    both. The device is filled by a power of two, so that rows of many counts share a kernel.
    """
    fill = PROGRAMS // max(1, rows * kv_heads)
    fill = 1 << max(1, fill).bit_length() - 1
    wanted = max(fill, -(-tokens // SPLIT_TOKENS))
    return min(wanted, MAX_SPLITS, max(1, -(-tokens // block)))


def decode(
    heads: Heads, cells: Cells, new: tuple[Tensor, Tensor | None, Tensor | None], pools: Pools,
    plan: PagedPlan, step: AttentionStep, out: Tensor,
) -> None:  # fmt: skip
    """One query of each row, or of each row of the lead, into ``out``.

    With a key and value in ``new`` these are written too; norms and rope are those of ``step``.
    """
    q, k, v = (None if x is None else flat(x) for x in new)
    gate = None if step.gate_TND is None else flat(step.gate_TND)
    rows = plan.lead_rows if plan.num_lead_1 is not None else len(plan.kv_lens_B)
    N, G, D, p = heads.num_heads, heads.num_kv_heads, heads.head_dim, pools[0].shape[1]
    pages_BW, norms = flat(plan.pages_BW), around(step)
    tile = decode_tile(heads, rows, pages_BW.shape[1] * p)
    parts = stats = arrived = None
    if tile["SPLITS"] > 1:
        shape = (rows, N, tile["SPLITS"])
        parts = torch.empty((*shape, D), dtype=torch.float32, device=out.device)
        stats = torch.empty((*shape, 2), dtype=torch.float32, device=out.device)
        arrived = cells.of(out.device, rows * G)
    launch(
        decode_kernel[(rows, G, tile["SPLITS"])],
        q, k, v, *pools, gate, out, parts, stats, arrived,
        pages_BW, plan.kv_lens_B.contiguous(), plan.write_T.contiguous(), plan.num_lead_1, *norms,
        *strides(q), *strides(k), *strides(v), *strides(gate), pools[0].stride(1),
        pools[0].stride(2), pages_BW.stride(0), p, step.scale * LOG2_E, step.eps,
        N=N, R=heads.group, D=D, ROT=0 if norms[2] is None else norms[2].shape[-1],
        BLOCK_M=max(16, pow2(heads.group)), BLOCK_R=pow2(heads.group), BLOCK_D=heads.block_d,
        WHOLE=p % tile["BLOCK_S"] == 0, **tile, **early(out, plan.num_lead_1 is None), **FUSED,
    )  # fmt: skip


def decode_tile(heads: Heads, rows: int, table_tokens: int) -> dict[str, Any]:
    """How many programs share a row's keys, and how one reads them."""
    tokens = max(heads.max_tokens, table_tokens)
    return {
        "SPLITS": splits_for(rows, heads.num_kv_heads, tokens, heads.keys),
        "BLOCK_S": heads.keys,
        **{n: v for n, v in heads.options(2).items() if n not in FUSED},
    }
