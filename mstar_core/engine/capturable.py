"""What a graph cannot do, and the words of the refusal."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mstar_core.engine.graphs import CaptureRefused
from mstar_core.engine.recorded import tensors_in
from mstar_core.errors import Words

HOST_DATA = frozenset({"aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift"})
INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_unsafe_index"})
MOVING = frozenset({"aten::resize_", "aten::set_", "aten::resize_as_"})


def forbidden(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, str] | None:
    """(code, what it is) of an ATen operation that a graph cannot hold, or None."""
    name = func._schema.name
    if name in HOST_DATA:
        return "host-data", "a tensor made from host data"
    if name in MOVING:
        return "resize", "an operation that moves a tensor's memory"
    if name in INDEXING:
        masks = (torch.bool, torch.uint8)
        if any(t.dtype in masks for t in tensors_in(args[1])):
            return "host-read", "an index by a mask: its shape is a value"
        return None
    if torch.Tag.nondeterministic_seeded in func.tags and _dropout(func, args, kwargs) != 0:
        return "random", "random numbers with a state of their own"
    if _reads_values(func, kwargs):
        return "host-read", "a value or a shape that the host must read"
    return None


def refused(graph: str, code: str, what: str, got: str) -> CaptureRefused:
    """The refusal of ``what`` the forward did, with the line of code that did it."""
    want, fix = _ADVICE[code]
    where = f"graph {graph}, {what}{_caller()}"
    return CaptureRefused(code=code, where=where, got=Words(got), want=want, fix=fix)


def _reads_values(func: Any, kwargs: Mapping[str, Any]) -> bool:
    if func._schema.name == "aten::repeat_interleave" and kwargs.get("output_size") is not None:
        return False
    tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
    return any(tag in func.tags for tag in tags)


def _dropout(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
    """The call's ``dropout_p`` where the operation has one: attention is random only with it."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p")
            return float(argument.default_value if given is None else given)
    return None


def _caller() -> str:
    """The innermost line of code outside torch and the recorder, as ``, at file:line``."""
    inside = (str(Path(torch.__file__).parent), str(Path(__file__).with_name("record")), __file__)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(inside):
            return f", at {frame.filename}:{frame.lineno}"
    return ""


_FIXED = "fixed buffers, parameters, the bucket's inputs and what the forward makes"
_ADVICE = {
    "host-read": (
        "a forward whose shapes and branches do not depend on values",
        "use torch.where, a mask or an index tensor of the plan",
    ),
    "host-data": (
        "constants that are parameters or buffers of the module",
        "register the constant as a buffer, or use torch.full or fill_ with a Python number",
    ),
    "stale-input": (
        _FIXED,
        "claim the tensor as a fixed buffer, register it on the module, or put it in the plan",
    ),
    "random": (
        "noise that is a function of seed and position",
        "take the noise from the sampler's hash",
    ),
    "resize": (
        "memory that keeps its address",
        "claim the buffer at its largest size",
    ),
    "output": (
        "an output that is made inside: what it shares is overwritten by the next step",
        "return a copy (clone)",
    ),
    "launch-result": (
        "a launch that writes into its arguments",
        "allocate the result before the launch, and pass it",
    ),
}
"""Per code: what is wanted, and what to do."""
