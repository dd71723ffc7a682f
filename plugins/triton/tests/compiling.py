"""Compiles every kernel that an operation launches at published sizes, for a GPU not present.

Run as ``python compiling.py sm_90 gated_delta``; it prints a line for each. ``compiling.py
sources`` compiles nothing: it prints how many kernels the products of few rows are. Inputs are on
torch's ``meta`` device: grids, tiles and strides follow from shapes alone.
"""

import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
from triton.runtime.jit import JITFunction

from mstar_core.bench.op_subjects import Sizes, subjects
from mstar_core.launch import door
from mstar_core.ops.backend import BindRequest
from mstar_core.plugins import Wiring, discover
from mstar_core.plugins.load import load_one
from mstar_triton import backend

TARGETS = {"sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.bool: "*i1",
}
OPTIONS = {"num_warps", "num_stages", "enable_fp_fusion", "maxnreg", "launch_pdl"}


class Launch:
    """A kernel with its grid."""

    def __init__(self, kernel, grid):
        self.kernel, self.grid = kernel, grid


def launch_of(kernel, grid):
    """What ``kernel[grid]`` gives."""
    return Launch(kernel, grid)


def source_of(kernel, values):
    """As the runtime specialises it: constants, and pointers and strides divisible by 16."""
    constant = {p.name for p in kernel.params if p.is_constexpr}
    signature, constexprs, attributes = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        value = values[name]
        divisible = isinstance(value, torch.Tensor)
        one = type(value) is int and value == 1
        if name in constant or value is None or one:
            signature[name], constexprs[name] = "constexpr", value
            continue
        if isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
        elif type(value) is int:
            signature[name] = "i32" if abs(value) < 1 << 31 else "i64"
            aligned = not kernel.params[i].do_not_specialize_on_alignment
            divisible = aligned and value % 16 == 0
        else:
            signature[name] = "fp32"
        if divisible:
            attributes[(i,)] = [["tt.divisibility", 16]]
    source = GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource
    return source(kernel, signature, constexprs=constexprs, attrs=attributes)


def compile_for(target, launched, args, kwargs):
    values = dict(zip(launched.kernel.arg_names, args, strict=False))
    options = {n: v for n, v in kwargs.items() if n in OPTIONS}
    values |= {n: v for n, v in kwargs.items() if n not in OPTIONS}
    made = triton.compile(source_of(launched.kernel, values), target=target, options=options)
    print(launched.kernel.__name__, launched.grid, options, f"{made.metadata.shared} B shared")
    assert made.metadata.shared <= (65536 if target.backend == "hip" else 232448)


def main(target, operation):
    JITFunction.__getitem__ = launch_of
    backend.AMD = TARGETS[target].backend == "hip"  # before the launches read it
    from mstar_triton.linear import streamed

    streamed.hopper = lambda device: target == "sm_90"
    wiring = Wiring.of_core()
    (record,) = [record for record in discover() if record.name == "triton"]
    load_one(record, wiring, None)
    meta, dtype = torch.device("meta"), torch.bfloat16
    with door(lambda launched, args, kwargs: compile_for(TARGETS[target], launched, args, kwargs)):
        for subject in subjects(Sizes(prompts=(8,)), [1, 64], 2):
            if subject.operation == operation:
                request = BindRequest(
                    operation=operation, device="cuda", dtype=dtype, geometry=subject.geometry
                )
                ops = wiring.backends.resolve(operation, "triton").bind(request)
                print(subject.shape)
                subject.make(meta, dtype)(ops)


def sources():
    """The kernels of a product of few rows, with how many each is over several counts of rows."""
    JITFunction.__getitem__ = launch_of
    from mstar_triton.linear import launches, streamed

    made, meta = {}, {"dtype": torch.bfloat16, "device": "meta"}

    def keep(launched, args, kwargs):
        values = dict(zip(launched.kernel.arg_names, args, strict=False)) | kwargs
        name = launched.kernel.__name__
        made.setdefault(name, set()).add(source_of(launched.kernel, values).hash())

    with door(keep):
        for rows in (2, 15, 16):
            x, weight = torch.empty(rows, 256, **meta), torch.empty(512, 256, **meta)
            for product in (launches.few_rows, streamed.streamed):
                product(x, weight, launches.Ends(), backend.Cells())
    print(*(f"{name} {len(hashes)}" for name, hashes in sorted(made.items())))


if __name__ == "__main__":
    sources() if sys.argv[1] == "sources" else main(*sys.argv[1:])
