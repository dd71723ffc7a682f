"""Compiles every kernel that an operation launches at published sizes, for a GPU not present.

Run as ``python compiling.py sm_90 gated_delta``; it prints a line for each. ``compiling.py
sources`` compiles nothing: it prints how many kernels steps of several sizes are. Inputs are on
torch's ``meta`` device: grids, tiles and strides follow from shapes alone.
"""

import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from mstar_core.bench.op_subjects import Sizes, attention, delta, subjects
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
MANY = 2048
"""Rows of a product that is no longer one of few."""
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
        param = kernel.params[i]
        one = type(value) is int and value == 1 and not param.do_not_specialize
        if name in constant or value is None or one:
            signature[name], constexprs[name] = "constexpr", value
            continue
        if isinstance(value, TensorDescriptor):
            element = POINTERS[value.base.dtype][1:]
            signature[name] = f"tensordesc<{element}{value.block_shape}>"
        elif isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
        elif type(value) is int:
            signature[name] = "i32" if abs(value) < 1 << 31 else "i64"
            fixed = param.do_not_specialize or param.do_not_specialize_on_alignment
            divisible = value % 16 == 0 and not fixed
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
    with door(lambda launched, args, kwargs: compile_for(TARGETS[target], launched, args, kwargs)):
        rows = [1, 64, *([MANY] if operation == "linear" else [])]
        for subject in subjects(Sizes(prompts=(8,)), rows, 2):
            if subject.operation == operation:
                print(subject.shape)
                run(wiring.backends.resolve(operation, "triton"), subject)


def run(backend, subject, **geometry):
    dtype, geometry = torch.bfloat16, dict(subject.geometry) | geometry
    request = BindRequest(
        operation=subject.operation, device="cuda", dtype=dtype, geometry=geometry
    )
    subject.make(torch.device("meta"), dtype)(backend.bind(request))


def sources():
    """The kernels of steps, with how many each is over several counts of rows, pages and tokens."""
    JITFunction.__getitem__ = launch_of
    from mstar_triton.attention import paged
    from mstar_triton.gated_delta import backend as gated_delta
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
        for rows, tokens in ((1, 1), (2, 40), (3, 640), (16, 1030)):
            sizes = Sizes(context=tokens)
            run(paged.BACKEND, attention(sizes, rows, tokens + 1, 2))
            run(gated_delta.BACKEND, delta(sizes, rows, tokens + 1, 2))
            run(paged.BACKEND, attention(sizes, 2, 1, 2), max_tokens=2048)
    for name, hashes in sorted(made.items()):
        print(name, len(hashes))


if __name__ == "__main__":
    sources() if sys.argv[1] == "sources" else main(*sys.argv[1:])
