"""What a recording holds: operations in order, run again into the tensors of the first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, frozen
from torch import Tensor

from mstar_core.engine.graphs import Graph
from mstar_core.errors import DeviceFault, SealedError, Words


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Every tensor of nested arguments or results, in order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from tensors_in(value)


def with_aliases(values: Any) -> Any:
    """The same arguments with tensor objects of our own, whose shapes nobody changes."""
    if isinstance(values, Tensor):
        return torch.ops.aten.alias.default(values)
    if isinstance(values, list | tuple):
        return type(values)(with_aliases(value) for value in values)
    if isinstance(values, dict):
        return {name: with_aliases(value) for name, value in values.items()}
    return values


def address(tensor: Tensor) -> int:
    """Where the tensor's storage lies; 0 where it has no bytes."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() if storage.nbytes() else 0


def poison(tensor: Tensor) -> None:
    """Fill with a value that cannot be mistaken for a computed one."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max // 2)


@frozen(eq=False)
class Operation:
    """One recorded call, and where its new results go."""

    name: str
    call: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    results: Sequence[tuple[int, Tensor]]
    """(place among the results, recorded tensor) of each result that is new memory."""

    def run(self) -> None:
        """Call it again, into the recorded tensors."""
        found = self.call(*self.args, **self.kwargs)
        if not self.results:
            return
        tensors = (found,) if isinstance(found, Tensor) else [*tensors_in(found)]
        for place, recorded in self.results:
            recorded.copy_(tensors[place])


@define(kw_only=True, eq=False)
class RecordedGraph(Graph):
    """Operations in order, over memory that was there or was made inside."""

    name: str
    outputs: Mapping[str, Tensor]
    num_bytes: int
    operations: Sequence[Operation]
    _unwritten: Sequence[Tensor]
    """Memory made inside that no operation writes whole as it makes it: poison before a replay."""
    _fixed: Sequence[tuple[Tensor, int]]

    def replay(self) -> None:
        for tensor, was in self._fixed:
            if address(tensor) != was:
                raise SealedError(
                    where=f"graph {self.name}, a fixed tensor of shape {list(tensor.shape)}",
                    got=Words("memory that has moved since the capture"),
                    want="the address that the graph has recorded",
                    fix="write into the tensor in place, and never resize or replace its memory",
                )
        with torch.no_grad():
            for tensor in self._unwritten:
                poison(tensor)
            for operation in self.operations:
                try:
                    operation.run()
                except Exception as error:
                    shapes = [list(t.shape) for t in tensors_in([*operation.args])]
                    raise DeviceFault(
                        where=f"graph {self.name}, {operation.name} of shapes {shapes}",
                        got=Words(f"{type(error).__name__}: {error}"),
                        want="a replay that succeeds, as the capture did",
                        fix="look for an index that the graph reads before it is written",
                    ) from error
