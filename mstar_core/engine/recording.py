"""Watching one call of a forward: what it does is kept, what a graph could not do is refused."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import define, field
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mstar_core.engine.graphs import CaptureRefused
from mstar_core.engine.recorded import (
    Operation,
    RecordedGraph,
    address,
    poison,
    tensors_in,
    with_aliases,
)
from mstar_core.errors import Words

HOST_READS = frozenset(
    {"tolist", "numpy", "__array__", "__dlpack__", "__repr__", "item", "cpu", "data_ptr", "storage"}
)
"""Tensor methods that hand values or addresses to the host."""
HOST_DATA = frozenset({"aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift"})
INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_unsafe_index"})
MOVING = frozenset({"aten::resize_", "aten::set_", "aten::resize_as_"})
UNWRITTEN = frozenset(
    f"aten::{name}"
    for name in (
        "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"
    )
)  # fmt: skip
"""Operations that allocate and write nothing: a replay leaves their memory as it is."""


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches one call of a forward."""

    def __init__(self, name: str, known: frozenset[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = name
        self.operations: list[Operation] = []
        self.fixed: dict[int, Tensor] = {}
        self.made: dict[int, Tensor] = {}
        self.launching = False
        self._known = known

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.launching:
            return func(*args, **kwargs)
        given = list(tensors_in([args, kwargs]))
        self._check_operation(func, given, args, kwargs)
        self._check_tensors(str(func), given)
        before = [address(t) for t in given]
        kept_args, kept_kwargs = with_aliases(args), with_aliases(kwargs)
        result = func(*args, **kwargs)
        if [address(t) for t in given] != before:
            raise self.refused("resize", str(func), "an operation that moves a tensor's memory")
        new = self._keep(result, {*before})
        mutates = func._schema.is_mutable and torch.Tag.inplace_view not in func.tags
        if mutates or (new and func._schema.name not in UNWRITTEN):
            self.operations.append(Operation(str(func), func, kept_args, kept_kwargs, new))
        return result

    def launch(self, kernel: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """The launch door: a kernel that the dispatcher does not see."""
        name = f"launch of {getattr(kernel, '__name__', kernel)}"
        self._check_tensors(name, tensors_in([args, kwargs]))
        kept_args, kept_kwargs = with_aliases(args), with_aliases(kwargs)
        self.launching = True
        try:
            result = kernel(*args, **kwargs)
        finally:
            self.launching = False
        if any(True for _ in tensors_in(result)):
            raise self.refused("launch-result", name, "a launch that returns tensors")
        self.operations.append(Operation(name, kernel, kept_args, kept_kwargs, ()))

    def graph(self, outputs: Mapping[str, Tensor]) -> RecordedGraph:
        """What was recorded. Raises CaptureRefused for an output that was not made inside."""
        for name, tensor in outputs.items():
            if address(tensor) not in {0, *self.made}:
                raise self.refused(
                    "output",
                    f"output {name} {list(tensor.shape)}",
                    "memory that is an input, a parameter or a fixed buffer",
                )
        for tensor in self.made.values():
            poison(tensor)
        return RecordedGraph(
            name=self.name,
            outputs=outputs,
            num_bytes=sum(t.untyped_storage().nbytes() for t in self.made.values()),
            operations=self.operations,
            made=list(self.made.values()),
            fixed=[(tensor, at) for at, tensor in self.fixed.items()],
        )

    def refused(self, code: str, what: str, got: str) -> CaptureRefused:
        """The refusal of one operation, with the line of code that called it."""
        want, fix = _ADVICE[code]
        where = f"graph {self.name}, {what}{_caller()}"
        return CaptureRefused(code=code, where=where, got=Words(got), want=want, fix=fix)

    def _check_operation(self, func: Any, given: list[Tensor], args: Any, kwargs: Any) -> None:
        name, what = func._schema.name, f"{func} of shapes {[list(t.shape) for t in given]}"
        if name in HOST_DATA:
            raise self.refused("host-data", what, "a tensor made from host data")
        if name in MOVING:
            raise self.refused("resize", what, "an operation that moves a tensor's memory")
        if name in INDEXING:
            if any(t.dtype in (torch.bool, torch.uint8) for t in tensors_in(args[1])):
                raise self.refused("host-read", what, "an index by a mask: its shape is a value")
        elif torch.Tag.nondeterministic_seeded in func.tags and _dropout(func, args, kwargs) != 0:
            raise self.refused("random", what, "random numbers with a state of their own")
        elif _reads_values(func, kwargs):
            raise self.refused("host-read", what, "a value or a shape that the host must read")

    def _check_tensors(self, what: str, given: Iterable[Tensor]) -> None:
        for tensor in given:
            at = address(tensor)
            if at == 0 or at in self.made:
                continue
            if at not in self._known:
                got = f"a stale input: {tensor.dtype} {list(tensor.shape)} from outside"
                raise self.refused("stale-input", what, got)
            self.fixed.setdefault(at, tensor)

    def _keep(self, result: Any, given: set[int]) -> list[tuple[int, Tensor]]:
        """The results that are new memory, with aliases of our own."""
        new = []
        for place, tensor in enumerate(tensors_in(result)):
            at = address(tensor)
            if at == 0 or at in given:
                continue
            new.append((place, torch.ops.aten.alias.default(tensor)))
            if at not in self.made:
                storage = tensor.untyped_storage()
                whole = storage.nbytes() // tensor.element_size()
                self.made[at] = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (whole,), (1,))
        return new


@define(eq=False)
class HostReads(TorchFunctionMode):
    """Refuses the reads of values that the dispatcher does not see."""

    recording: Recording = field()

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in HOST_READS and not self.recording.launching:
            shape = list(args[0].shape) if args and isinstance(args[0], Tensor) else []
            what = f"Tensor.{name} of shape {shape}"
            raise self.recording.refused("host-read", what, "a value that the host must read")
        return func(*args, **(kwargs or {}))


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
    """The innermost line of code outside torch and this module, as ``, at file:line``."""
    inside = (str(Path(torch.__file__).parent), __file__)
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
