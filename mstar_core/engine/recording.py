"""Watching one call of a forward: what it does is kept, what a graph could not do is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from attrs import define, field
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mstar_core.engine.capturable import forbidden, refused
from mstar_core.engine.graphs import CaptureRefused
from mstar_core.engine.recorded import (
    Operation,
    RecordedGraph,
    address,
    poison,
    tensors_in,
    with_aliases,
)

HOST_READS = frozenset(
    {"tolist", "numpy", "__array__", "__dlpack__", "__repr__", "item", "cpu", "data_ptr", "storage"}
)
"""Tensor methods that hand values or addresses to the host."""
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
        self.unwritten: list[Tensor] = []
        self.launching = False
        self._known = known

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to be skipped by a compiler that nobody uses, torch would import all of it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.launching:
            return func(*args, **kwargs)
        given = list(tensors_in([args, kwargs]))
        found = forbidden(func, args, kwargs)
        if found is not None:
            code, got = found
            raise self.refused(code, f"{func} of shapes {[list(t.shape) for t in given]}", got)
        self._check_tensors(str(func), given)
        before = [address(t) for t in given]
        kept_args, kept_kwargs = with_aliases(args), with_aliases(kwargs)
        result = func(*args, **kwargs)
        if [address(t) for t in given] != before:
            raise self.refused("resize", str(func), "an operation that moves a tensor's memory")
        mutates = func._schema.is_mutable and torch.Tag.inplace_view not in func.tags
        writes = mutates or func._schema.name not in UNWRITTEN
        new = self._keep(result, {*before}, writes)
        if mutates or (new and writes):
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
            unwritten=self.unwritten,
            fixed=[(tensor, at) for at, tensor in self.fixed.items()],
        )

    def refused(self, code: str, what: str, got: str) -> CaptureRefused:
        """The refusal of one thing that the forward did."""
        return refused(self.name, code, what, got)

    def _check_tensors(self, what: str, given: Iterable[Tensor]) -> None:
        for tensor in given:
            at = address(tensor)
            if at == 0 or at in self.made:
                continue
            if at not in self._known:
                got = f"a stale input: {tensor.dtype} {list(tensor.shape)} from outside"
                raise self.refused("stale-input", what, got)
            self.fixed.setdefault(at, tensor)

    def _keep(self, result: Any, given: set[int], writes: bool) -> list[tuple[int, Tensor]]:
        """The results that are new memory, with aliases of our own.

        ``writes``: whether the operation writes what it returns.
        """
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
                if not writes or tensor.numel() < whole:
                    self.unwritten.append(self.made[at])
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
