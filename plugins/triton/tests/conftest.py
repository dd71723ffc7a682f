"""Without a GPU the kernels run in Triton's interpreter, which is chosen before it is imported."""

import os

import numpy as np
import pytest
import torch

ON_GPU = torch.cuda.is_available()  # noqa: TID251  (where the suite runs is the question)


def _arithmetic_of_a_gpu():
    """Products and rounding as a GPU does them.

    The interpreter cuts an fp32 number off to bf16 instead of rounding it, multiplies the integers
    of the bits of two bf16 matrices, and knows no tf32.
    """
    import triton.language as tl
    from triton._C.libtriton.ir import INPUT_PRECISION
    from triton.runtime.interpreter import InterpreterBuilder as Builder
    from triton.runtime.interpreter import TensorHandle

    dot, cast = Builder.create_dot, Builder.cast_impl

    def cast_impl(self, src, dst_type):
        pair = (src.dtype.scalar, dst_type.scalar)
        if pair == (tl.bfloat16, tl.float32):
            wide = src.data.astype(np.uint32) << 16
            return TensorHandle(wide.view(np.float32), tl.float32)
        if pair == (tl.float32, tl.bfloat16):
            bits = np.ascontiguousarray(src.data).view(np.uint32)
            even = (bits >> 16) & 1
            rounded = (bits + (0x7FFF + even)) >> 16
            kept = np.where(np.isnan(src.data), (bits >> 16) | 0x40, rounded)
            return TensorHandle(kept.astype(np.uint16), tl.bfloat16)
        return cast(self, src, dst_type)

    def operand(x, precision):
        if x.dtype.scalar is tl.bfloat16:
            return cast_impl(None, x, tl.float32)
        if x.dtype.scalar is tl.float32 and precision == INPUT_PRECISION.TF32:
            bits = np.ascontiguousarray(x.data).view(np.uint32) & np.uint32(0xFFFFE000)
            return TensorHandle(bits.view(np.float32), tl.float32)
        return x

    def create_dot(self, a, b, d, precision, imprecise):
        a, b = (operand(x, precision) for x in (a, b))
        return dot(self, a, b, d, precision, imprecise)

    Builder.create_dot, Builder.cast_impl = create_dot, cast_impl


if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # noqa: TID251
    _arithmetic_of_a_gpu()


@pytest.fixture(autouse=True)
def _where(request):
    """Tests marked ``gpu`` need a GPU; the others run without one."""
    marked = request.node.get_closest_marker("gpu") is not None
    if marked != ON_GPU:
        pytest.skip("torch sees no CUDA device" if marked else "tests marked gpu cover this")


QUICK = {
    "zero-length-row", "decode-padded", "decode-first", "one-kv-head", "zero-length-rows",
    "greedy", "mixed", "ties", "top-k", "top-p", "cold",
}  # fmt: skip
"""Cases of the conformance suites that are interpreted at every run; the others under ``long``."""
QUICK_DTYPES = (torch.float32, torch.bfloat16)
SLOW = ("any_length", "cut_anywhere", "copy_of_a_slot", "width_of_the_lead", "row_alone_is")


def pytest_collection_modifyitems(items):
    for item in items:
        if "test_conformance" not in item.nodeid:
            continue
        given = item.callspec.params if hasattr(item, "callspec") else {}
        case, dtype = str(given.get("case", "")), given.get("dtype", torch.float32)
        quick = (not case or case in QUICK) and dtype in QUICK_DTYPES
        if not quick or any(name in item.name for name in SLOW):
            item.add_marker(pytest.mark.long)
