"""Compiles every kernel of ``codec_columns`` at the published sizes, for a GPU not present.

Run as ``python compiling.py``; it prints the kernels. Inputs are on torch's ``meta`` device: grids,
tiles and strides follow from shapes alone.
"""

import torch
import triton
from mstar_qwen3_tts.columns import triton_launches
from mstar_qwen3_tts.columns.contract import Bend, Frames, Taps, Window
from mstar_qwen3_tts.packed import PackedRows
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from mstar_core.launch import door

TARGET = GPUTarget("cuda", 90, 32)
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.bool: "*i1",
}
OPTIONS = {"num_warps", "num_stages", "enable_fp_fusion"}
CONVOLUTIONS = (
    (1, 512, 1024, 3, 1),
    (4, 1024, 1536, 7, 1),
    (4, 1536, 6144, 2, 1),
    (1, 1024, 2048, 1, 1),
    (32, 768, 768, 7, 9),
    (160, 384, 384, 7, 3),
    (640, 192, 192, 7, 9),
    (1920, 96, 96, 7, 1),
    (1920, 96, 96, 1, 1),
    (1920, 96, 1, 7, 1),
)
"""Columns of an item, channels in and out, taps, dilation."""


seen = set()


def tensor(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def compile_launched(launched, args, kwargs):
    kernel = launched[0]
    values = dict(zip(kernel.arg_names, args, strict=False))
    values |= {name: value for name, value in kwargs.items() if name not in OPTIONS}
    constant = {p.name for p in kernel.params if p.is_constexpr}
    signature, constants, attributes = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        value = values[name]
        if name in constant or value is None:
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
            attributes[(i,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32" if type(value) is int else "fp32"
            fixed = kernel.params[i].do_not_specialize
            if type(value) is int and value % 16 == 0 and not fixed:
                attributes[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
    options = {name: value for name, value in kwargs.items() if name in OPTIONS}
    told = (kernel.__name__, str(signature), str(constants), str(attributes), str(options))
    if told in seen:
        return
    seen.add(told)
    made = triton.compile(source, target=TARGET, options=options)
    print(kernel.__name__.removesuffix("_kernel"), launched[1], made.metadata.shared)
    assert made.metadata.shared <= 232448


def main():
    JITFunction.__getitem__ = lambda kernel, grid: (kernel, grid)
    index = {"dtype": torch.int64}
    for rows, items in ((1, 1), (64, 1024)):
        packed = PackedRows(
            starts_B=tensor(rows, **index),
            lens_B=tensor(rows, **index),
            row_T=tensor(items, **index),
            slots_B=tensor(rows, **index),
            fresh_B=tensor(rows, dtype=torch.bool),
        )
        for rate, inputs, outputs, taps, dilation in CONVOLUTIONS:
            kept = (taps - 1) * dilation
            by = Bend(alpha_C=tensor(inputs), beta_C=tensor(inputs))
            given = Taps(
                weight=tensor(taps, inputs, outputs),
                bias_N=tensor(outputs),
                taps=taps,
                dilation=dilation,
                memory_SKC=tensor(rows + 1, kept, inputs) if kept else None,
                before=by if kept else None,
                behind=by if kept and outputs == inputs else None,
            )
            added = None if kept else tensor(rate * items, outputs)
            triton_launches.convolve(tensor(rate * items, inputs), given, packed, added)
        by_channel = Taps(
            weight=tensor(7, 1024),
            bias_N=tensor(1024),
            taps=7,
            by_channel=True,
            memory_SKC=tensor(rows + 1, 6, 1024),
        )
        triton_launches.convolve(tensor(2 * items, 1024), by_channel, packed)
        turns = tensor(items, 64, dtype=torch.float32)
        frames = Frames(rows=packed, index_T=tensor(items, **index), rope=(turns, turns))
        qkv = tensor(items, 48, 64).split(16, 1)
        window = Window(size=72, memory_SKC=tensor(rows + 1, 71, 2048))
        triton_launches.attend(*qkv, window, frames)


if __name__ == "__main__":
    with door(compile_launched):
        main()
