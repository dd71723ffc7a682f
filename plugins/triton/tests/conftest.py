"""Without a GPU the kernels run in Triton's interpreter, which is chosen before it is imported."""

import os

import pytest
import torch

ON_GPU = torch.cuda.is_available()  # noqa: TID251  (where the suite runs is the question)


def _products_of_bf16():
    """The interpreter keeps bf16 as the integers of its bits, and would multiply those."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    dot = Builder.create_dot

    def create_dot(self, a, b, *rest):
        a, b = (
            self.create_fp_ext(x, tl.float32) if x.dtype.scalar is tl.bfloat16 else x
            for x in (a, b)
        )
        return dot(self, a, b, *rest)

    Builder.create_dot = create_dot


if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # noqa: TID251
    _products_of_bf16()


@pytest.fixture(autouse=True)
def _where(request):
    """Tests marked ``gpu`` need a GPU; the others run without one."""
    marked = request.node.get_closest_marker("gpu") is not None
    if marked != ON_GPU:
        pytest.skip("torch sees no CUDA device" if marked else "tests marked gpu cover this")


QUICK = {
    "zero-length-row", "decode-padded", "decode-first", "one-kv-head", "not-causal",
}  # fmt: skip
"""Cases of the conformance suites that are interpreted at every run; the others under ``long``."""
COVERED = (torch.float32, torch.bfloat16)


def pytest_collection_modifyitems(items):
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        case, dtype = str(given.get("case", "")), given.get("dtype", torch.float32)
        if "test_conformance" in item.nodeid and (
            (case and case not in QUICK) or dtype not in COVERED
        ):
            item.add_marker(pytest.mark.long)
