"""The kernels with their grids and tiles, which follow from shapes alone."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from mstar_core.launch import launch
from mstar_qwen3_tts.columns.contract import Bend, Frames, Taps, Window
from mstar_qwen3_tts.columns.triton_kernels import (
    depth_kernel,
    join_kernel,
    taps_kernel,
    turn_kernel,
    window_kernel,
)
from mstar_qwen3_tts.packed import PackedRows

FUSED = {"enable_fp_fusion": True}
"""A product and a sum may be one instruction; said because Triton warns where it is left out."""
PROCESSORS = 132
"""Of an H200."""
COLUMNS = 64
"""Columns and channels that a program copies."""


def pow2(n: int) -> int:
    """The power of two at or above ``n``."""
    return int(triton.next_power_of_2(n))


def of(bend: Bend | None) -> tuple[Tensor | None, Tensor | None]:
    """Its two vectors."""
    return (None, None) if bend is None else (bend.alpha_C, bend.beta_C)


def joined(x_LC: Tensor, memory_SKC: Tensor, rows: PackedRows, bend: Bend | None) -> Tensor:
    """Each row behind its last K columns: ``[L + B K, C]``. The memory is renewed."""
    (L, C), K, B = x_LC.shape, memory_SKC.shape[1], len(rows.slots_B)
    joined_EC = x_LC.new_empty(L + B * K, C)
    launch(
        join_kernel[(B + triton.cdiv(L, COLUMNS), triton.cdiv(C, COLUMNS))],
        x_LC, memory_SKC, joined_EC, *of(bend), rows.row_T, rows.starts_B, rows.lens_B,
        rows.slots_B, rows.fresh_B, L, B, L // len(rows.row_T), C, K,
        BLOCK_L=COLUMNS, BLOCK_K=max(COLUMNS, pow2(K)), BLOCK_C=COLUMNS, num_warps=4, **FUSED,
    )  # fmt: skip
    return joined_EC


def tiles(L: int, N: int, C: int) -> dict[str, int]:
    """Few tiles, as each is compiled: large ones where there are columns for all processors."""
    columns = next((size for size in (16, 64) if size >= L), 128)
    outputs = 16 if N <= 16 else 64
    if columns == 128 and (N % 128 == 0 or 64 < N < 128):
        full = N % 256 == 0 and triton.cdiv(L, columns) * (N // 256) >= PROCESSORS
        outputs = 256 if full else 128
    return {
        "BLOCK_L": columns,
        "BLOCK_N": outputs,
        "BLOCK_C": 32 if C % 64 else 64,
        "num_warps": 8 if outputs >= 128 else 4,
        "num_stages": 3 if outputs >= 128 else 4,
    }


def convolve(x_LC: Tensor, taps: Taps, rows: PackedRows, added_LN: Tensor | None = None) -> Tensor:
    """See :class:`~mstar_qwen3_tts.columns.contract.Convolve`."""
    (L, C), rate = x_LC.shape, len(x_LC) // len(rows.row_T)
    if taps.memory_SKC is not None:
        x_LC = joined(x_LC, taps.memory_SKC, rows, taps.before)
    if taps.by_channel:
        out_LN = x_LC.new_empty(L, C)
        launch(
            depth_kernel[(triton.cdiv(L, 16), triton.cdiv(C, 128))],
            x_LC, taps.weight, taps.bias_N, rows.row_T, out_LN, L, rate, C,
            TAPS=taps.taps, DILATION=taps.dilation, BLOCK_L=16, BLOCK_C=128, num_warps=4, **FUSED,
        )  # fmt: skip
        return out_LN
    N = taps.weight.shape[-1]
    out_LN, tile = x_LC.new_empty(L, N), tiles(L, N, C)
    launch(
        taps_kernel[(triton.cdiv(N, tile["BLOCK_N"]), triton.cdiv(L, tile["BLOCK_L"]))],
        x_LC, taps.weight, taps.bias_N, *of(taps.behind), added_LN,
        None if taps.memory_SKC is None else rows.row_T, out_LN,
        L, rate, taps.taps, taps.dilation, C, N, **tile, **FUSED,
    )  # fmt: skip
    return out_LN


def attend(q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor, window: Window, frames: Frames) -> Tensor:
    """See :class:`~mstar_qwen3_tts.columns.contract.Attend`."""
    (T, N, D), G, rows = q_TND.shape, k_TGD.shape[1], frames.rows
    turned_TC, kv_TC = q_TND.new_empty(T, N * D), q_TND.new_empty(T, 2 * G * D)
    heads = {"N": N, "G": G, "D": D}
    launch(
        turn_kernel[(T, 3)],
        q_TND, k_TGD, v_TGD, *frames.rope, turned_TC, kv_TC,
        q_TND.stride(0), k_TGD.stride(0), v_TGD.stride(0),
        **heads, BLOCK_N=pow2(N), BLOCK_D=pow2(D // 2), num_warps=2, **FUSED,
    )  # fmt: skip
    kv_EC, out_TC = joined(kv_TC, window.memory_SKC, rows, None), torch.empty_like(turned_TC)
    launch(
        window_kernel[(T, N)],
        turned_TC, kv_EC, rows.row_T, frames.index_T, out_TC, D**-0.5,
        **heads, SIZE=window.size, BLOCK_W=pow2(window.size), BLOCK_D=pow2(D), num_warps=4,
        **FUSED,
    )  # fmt: skip
    return out_TC
