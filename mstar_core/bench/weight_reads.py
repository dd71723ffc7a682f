"""What a forward reads of its weights, and the products with them: by watching it once.

On the meta device nothing is computed, so any size can be watched. A weight that several operations
read counts once; one that is gathered from counts by what is taken of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

GATHERS = frozenset({torch.ops.aten.embedding, torch.ops.aten.index, torch.ops.aten.index_select})
"""Operations that read of their first tensor what they return."""


class WeightReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the operations on some tensors while it is entered."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_flops = 0
        """Of products with a weight; a multiplication and an addition are two."""
        self._whole = {_storage(w): w.untyped_storage().nbytes() for w in weights}
        self._views: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self._gathered = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of weights that were read."""
        read = dict.fromkeys(self._whole, 0)
        for (storage, _, _), size in self._views.items():
            read[storage] = min(read[storage] + size, self._whole[storage])
        return sum(read.values()) + self._gathered

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        weights = [t for t in given if _storage(t) in self._whole]
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        if not weights or any(_storage(t) in self._whole for t in made):
            return result  # no weight, or a view of one
        if func.overloadpacket in GATHERS and _storage(args[0]) in self._whole:
            self._gathered += sum(t.nbytes for t in made)
            return result
        for weight in weights:
            key = _storage(weight), int(weight.storage_offset()), tuple(weight.shape)
            self._views[key] = weight.nbytes
        count: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        if count is not None:
            self.num_flops += count(*args, **kwargs, out_val=result)
        return result


def _storage(tensor: Tensor) -> int:
    """Which memory it is; on the meta device addresses are all 0."""
    return int(tensor.untyped_storage()._cdata)
