"""Products of few rows whose weights are on their way before the kernel before has ended.

In a chain of small kernels each waits for what the one before wrote, and only then asks for its own
weight: memory rests while rows are read, and rows rest while memory is read. Here a program copies
its share of the weight to shared memory first, asynchronously, and waits then. Programs leave room
for those of the next kernel or two, whose copies run meanwhile.
"""

from __future__ import annotations

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.language.extra import cuda

copy = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
"""Both have two names: that of Triton after 3.6 and that of 3.6."""


@triton.constexpr_function
def under_way(t, tiles, stages, x_stages, least):
    """Groups of copies that may be unfinished when tile ``t`` is multiplied: all behind its own.

    First go ``stages`` tiles of the weight, then ``x_stages`` of x, then from the second product on
    those that take the places of what was multiplied.
    """
    again = max(0, min(t - 1, tiles - least))
    own = max(x_stages + t if t >= stages else 0, stages + t if x_stages else t)
    return stages + x_stages + again - 1 - own


@gluon.jit(do_not_specialize_on_alignment=("M",))
def streamed_kernel(
    x_ptr, weight_ptr, norm_ptr, bias_ptr, residual_ptr, part_ptr, arrived_ptr, out_ptr,
    x_row, residual_row, M, eps,
    N: gl.constexpr, K: gl.constexpr, GATED: gl.constexpr, SPLITS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_K: gl.constexpr, TILES: gl.constexpr,
    STAGES: gl.constexpr, X_STAGES: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """One program per 64 rows of the weight, part of K and BLOCK_M rows of x.

    With GATED, 32 of the 64 are gates and the others what they gate. A norm is done here, once all
    of K is read, while the weight arrives: then X_STAGES is TILES. The last of a block's parts to
    arrive sums them all, in their order and not in that of arrival.
    """
    column, part, block = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    first = part * TILES * BLOCK_K
    dtype: gl.constexpr = weight_ptr.dtype.element_ty
    OUT: gl.constexpr = 32 if GATED else 64
    COPIED: gl.constexpr = X_STAGES if norm_ptr is None else 0
    LEAST: gl.constexpr = min(STAGES, X_STAGES)
    swizzled: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    lanes: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_K, BLOCK_K // 8], [4, 1], [1, 0])
    product: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    turned: gl.constexpr = gl.BlockedLayout([2, 1], [16, 2], [1, 4], [0, 1])
    weights = gl.allocate_shared_memory(dtype, [STAGES, 64, BLOCK_K], swizzled)
    rows = gl.allocate_shared_memory(dtype, [X_STAGES, BLOCK_M, BLOCK_K], swizzled)
    if PDL:
        cuda.gdc_launch_dependents()
    i = gl.arange(0, 64, gl.SliceLayout(1, lanes))
    k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, lanes))
    n = gl.minimum(column * OUT + i % OUT, N - 1) + i // OUT * N
    weight_at = weight_ptr + n.to(gl.int64)[:, None] * K + first + k[None, :]
    for t in gl.static_range(STAGES):
        in_k = (first + t * BLOCK_K + k < K)[None, :]
        copy(weights.index(t), weight_at + t * BLOCK_K, mask=in_k)
        async_copy.commit_group()
    norms = ()
    if norm_ptr is not None:
        for t in gl.static_range(TILES):
            norms = norms + (gl.load(norm_ptr + t * BLOCK_K + k, mask=t * BLOCK_K + k < K),)  # noqa: RUF005
    if PDL:
        cuda.gdc_wait()
    m = block * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, lanes))
    in_m = (m < M)[:, None]
    x_at = x_ptr + m[:, None] * x_row + first + k[None, :]
    if norm_ptr is None:
        for t in gl.static_range(X_STAGES):
            in_k = (first + t * BLOCK_K + k < K)[None, :]
            copy(rows.index(t), x_at + t * BLOCK_K, mask=in_m & in_k)
            async_copy.commit_group()
    else:
        tiles = ()
        squares = gl.zeros([BLOCK_M, BLOCK_K], gl.float32, lanes)
        for t in gl.static_range(TILES):
            ok = in_m & (t * BLOCK_K + k < K)[None, :]
            tiles = tiles + (gl.load(x_at + t * BLOCK_K, mask=ok, other=0),)  # noqa: RUF005
        for t in gl.static_range(TILES):
            squares += tiles[t].to(gl.float32) * tiles[t].to(gl.float32)
        scale = gl.rsqrt(gl.sum(squares, 1) / K + eps)
        for t in gl.static_range(TILES):
            y = tiles[t].to(gl.float32) * scale[:, None] * norms[t].to(gl.float32)[None, :]
            rows.index(t).store(y.to(dtype))
    o = column * OUT + gl.arange(0, OUT, gl.SliceLayout(1, turned))
    r = block * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(0, turned))
    ok = (o < N)[:, None] & (r < M)[None, :]
    added = gl.zeros([OUT, BLOCK_M], gl.float32, turned)
    if residual_ptr is not None:
        at = residual_ptr + r[None, :] * residual_row + o[:, None]
        added += gl.load(at, mask=ok, other=0).to(gl.float32)
    acc = gl.zeros([64, BLOCK_M], gl.float32, product)
    for t in gl.static_range(TILES):
        async_copy.wait_group(under_way(t, TILES, STAGES, COPIED, LEAST))
        hopper.fence_async_shared()
        barrier()
        x = rows.index(t % X_STAGES).permute((1, 0))
        acc = hopper.warpgroup_mma(weights.index(t % STAGES), x, acc, is_async=True)
        if t > 0 and t - 1 + LEAST < TILES:
            acc = hopper.warpgroup_mma_wait(1, deps=[acc])
            barrier()
            if t - 1 + STAGES < TILES:
                to = (t - 1 + STAGES) * BLOCK_K
                in_k = (first + to + k < K)[None, :]
                copy(weights.index((t - 1) % STAGES), weight_at + to, mask=in_k)
            if COPIED > 0 and t - 1 + X_STAGES < TILES:
                to = (t - 1 + X_STAGES) * BLOCK_K
                in_k = (first + to + k < K)[None, :]
                copy(rows.index((t - 1) % X_STAGES), x_at + to, mask=in_m & in_k)
            async_copy.commit_group()
    acc = hopper.warpgroup_mma_wait(0, deps=[acc])
    if SPLITS > 1:
        cell = gl.arange(0, 64, gl.SliceLayout(1, product))[:, None] * BLOCK_M
        cell += gl.arange(0, BLOCK_M, gl.SliceLayout(0, product))[None, :]
        whole = column * gl.num_programs(2) + block
        parts = part_ptr + whole * SPLITS * 64 * BLOCK_M + cell
        gl.store(parts + part * 64 * BLOCK_M, acc)
        barrier()  # every thread's part is stored before one thread says so
        if gl.atomic_add(arrived_ptr + whole, 1, sem="acq_rel") < SPLITS - 1:
            return
        acc = gl.zeros([64, BLOCK_M], gl.float32, product)
        for s in gl.static_range(SPLITS):
            acc += gl.load(parts + s * 64 * BLOCK_M, cache_modifier=".cg")
        gl.store(arrived_ptr + whole, 0)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    sums = gl.allocate_shared_memory(gl.float32, [64, BLOCK_M], plain, acc)
    if GATED:
        gate = sums.slice(0, 32, 0).load(turned)
        y = gate / (1 + gl.exp(-gate)) * sums.slice(32, 32, 0).load(turned)
    else:
        y = sums.load(turned)
    if bias_ptr is not None:
        y += gl.load(bias_ptr + o, mask=o < N, other=0).to(gl.float32)[:, None]
    to = out_ptr + r.to(gl.int64)[None, :] * N + o[:, None]
    gl.store(to, (y + added).to(out_ptr.dtype.element_ty), mask=ok)
