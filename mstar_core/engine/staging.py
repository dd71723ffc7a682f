"""One copy in and one row out per step, through rings of page-locked host blocks.

All host arrays of a step (plans and inputs) are laid in one block and travel in one copy; what the
host reads of the step lands in another. Both come from rings of ``depth`` = steps in flight + 1
blocks: a block is written again only when the entry that used it has been retired, because the
engine never has more than ``depth`` entries between staging and retiring.

::

    ring 0   [stage 4][····in flight····][retire 4]          [stage 6] ...
    ring 1            [stage 5][····in flight····][retire 5]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from attrs import define, field, frozen
from torch import Tensor

from mstar_core.engine.device import Device
from mstar_core.errors import SealedError, Words
from mstar_core.fixed import FixedBuffers

Key = tuple[str, str]
"""(owner, field): a resource key and a plan's field, or ``("inputs", name)``."""

STAGING = "staging"
"""The owner of all device blocks: a graph may touch its own bucket's, and no other."""

ALIGN_BYTES = 16
"""Kernels load 16 bytes at once where they know that an address allows it."""


class Place(NamedTuple):
    """Where one array lies in a block."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    """Bytes, a multiple of 16."""
    num_bytes: int


class Block:
    """Bytes, seen as arrays or tensors. The views of a dtype are cut out of one of them all."""

    def __init__(self, content: Tensor) -> None:
        """``content``: uint8, on the host or on the device."""
        self.content = content
        whole = content[: len(content) // ALIGN_BYTES * ALIGN_BYTES]
        self._whole = whole
        self._arrays: dict[np.dtype, np.ndarray] = {}
        self._tensors: dict[np.dtype, Tensor] = {}

    def array(self, place: Place) -> np.ndarray:
        """The array at ``place`` of a host block."""
        dtype, shape, offset, num_bytes = place
        every = self._arrays.get(dtype)
        if every is None:
            every = self._arrays[dtype] = self._whole.numpy().view(dtype)
        first, last = offset // dtype.itemsize, (offset + num_bytes) // dtype.itemsize
        return every[first:last] if len(shape) == 1 else every[first:last].reshape(shape)

    def tensor(self, place: Place) -> Tensor:
        """The tensor at ``place``."""
        dtype, shape, offset, num_bytes = place
        every = self._tensors.get(dtype)
        if every is None:
            every = self._tensors[dtype] = self._whole.view(torch_dtype(dtype))
        first, last = offset // dtype.itemsize, (offset + num_bytes) // dtype.itemsize
        return every[first:last] if len(shape) == 1 else every[first:last].view(shape)


@frozen
class BlockLayout:
    """Arrays laid end to end in a block of bytes, each on a 16-byte boundary."""

    places: Mapping[Key, Place]
    num_bytes: int

    @classmethod
    def of(cls, arrays: Mapping[Key, np.ndarray]) -> Self:
        """The layout of these arrays, in their order."""
        places: dict[Key, Place] = {}
        offset = 0
        for key, array in arrays.items():
            places[key] = Place(array.dtype, array.shape, offset, array.nbytes)
            offset += -(-array.nbytes // ALIGN_BYTES) * ALIGN_BYTES
        return cls(places, offset)

    def views(self, block: Block) -> dict[Key, Tensor]:
        """Tensors of the arrays' shapes and dtypes over ``block``."""
        return {key: block.tensor(place) for key, place in self.places.items()}

    def arrays(self, block: Block) -> dict[Key, np.ndarray]:
        """The same over a host block, as arrays."""
        return {key: block.array(place) for key, place in self.places.items()}

    def check(self, arrays: Mapping[Key, np.ndarray]) -> None:
        """Raise SealedError for an array that is missing, new, or of another shape or dtype."""
        for key in {**self.places, **arrays}:
            place, array = self.places.get(key), arrays.get(key)
            if place is None or array is None:
                got, want = ("absent", "present") if array is None else ("present", "absent")
            elif (place.dtype, place.shape) != (array.dtype, array.shape):
                got = f"{array.dtype}{list(array.shape)}"
                want = f"{place.dtype}{list(place.shape)}"
            else:
                continue
            raise SealedError(
                where=f"static block, {'.'.join(key)}",
                got=Words(got),
                want=f"{want}, as in the padding-only plan at capture",
                fix="pad the plan's arrays to the bucket, and keep their dtypes",
            )


def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """The torch dtype of a numpy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


@frozen(eq=False)
class StaticBlock:
    """A bucket's device block: the addresses that its graph has recorded."""

    layout: BlockLayout
    block: Tensor
    views: Mapping[Key, Tensor]

    @classmethod
    def claim(cls, buffers: FixedBuffers, name: str, arrays: Mapping[Key, np.ndarray]) -> Self:
        """A block for arrays like these, claimed as fixed buffer ``staging.<name>``, zeroed."""
        layout = BlockLayout.of(arrays)
        block = buffers.claim(STAGING, name, (max(layout.num_bytes, 1),), torch.uint8)
        return cls(layout, block, layout.views(Block(block)))


class Staging:
    """The ring of blocks that steps travel in, and the device block of eager steps."""

    def __init__(
        self, device: Device, buffers: FixedBuffers, depth: int, max_bytes: int, name: str = "eager"
    ) -> None:
        """``depth`` host blocks of ``max_bytes``, and one on the device: ``staging.<name>``."""
        self._device = device
        self._ring = [Block(device.pinned((max_bytes,), torch.uint8)) for _ in range(depth)]
        self._eager = Block(buffers.claim(STAGING, name, (max_bytes,), torch.uint8))
        self._next = 0
        self._views: dict[StaticBlock, list[dict[Key, np.ndarray]]] = {}
        """Of each bucket that was staged, its arrays in every block of the ring."""

    def stage(
        self, arrays: Mapping[Key, np.ndarray], target: StaticBlock | None = None
    ) -> Mapping[Key, Tensor]:
        """Send ``arrays`` in one copy; the tensors they arrive in, in stream order.

        Every call belongs to one entry, which is launched (or failed) and retired. ``target`` is
        a bucket's block; None is an eager step, whose tensors hold until the next eager step's
        copy. Raises SealedError where the arrays differ from the target's, or exceed the ring.
        """
        if target is not None:
            target.layout.check(arrays)
        layout = BlockLayout.of(arrays) if target is None else target.layout
        number = self._next
        host = self._ring[number].content
        if layout.num_bytes > host.nbytes:
            raise SealedError(
                where="staging",
                got=Words(f"{layout.num_bytes} bytes in one step"),
                want=f"at most {host.nbytes} bytes, the size at build",
                fix="size the ring from the largest step that the token budget allows",
            )
        self._next = (self._next + 1) % len(self._ring)
        views = layout.arrays(self._ring[number]) if target is None else self._of(target)[number]
        for key, view in views.items():
            view[...] = arrays[key]
        sent = self._eager.content if target is None else target.block
        if layout.num_bytes:
            self._device.copy_in(host[: layout.num_bytes], sent[: layout.num_bytes])
        return layout.views(self._eager) if target is None else target.views

    def _of(self, target: StaticBlock) -> list[dict[Key, np.ndarray]]:
        found = self._views.get(target)
        if found is None:
            found = self._views[target] = [target.layout.arrays(block) for block in self._ring]
        return found


_NUMPY = {
    dtype: torch.empty(0, dtype=dtype).numpy().dtype
    for dtype in (torch.int64, torch.int32, torch.float32, torch.uint8, torch.bool)
}
ReadPlace = tuple[np.dtype, tuple[int, ...], int, int]
"""dtype, shape, first byte and number of bytes of one output in a packed block."""


def pack_reads(outputs: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, ReadPlace]]:
    """Outputs end to end in one uint8 tensor, so that one copy brings them; and where each lies.

    Wide dtypes come first, so that each is aligned.
    """
    places: dict[str, ReadPlace] = {}
    pieces: list[Tensor] = []
    at = 0
    for name, value in sorted(outputs.items(), key=lambda pair: -pair[1].element_size()):
        size = value.numel() * value.element_size()
        places[name] = (_NUMPY[value.dtype], tuple(value.shape), at, size)
        pieces.append(value.reshape(-1).view(torch.uint8))
        at += size
    if not pieces:
        return torch.zeros(0, dtype=torch.uint8), places
    whole = _end_to_end(pieces, at)
    return torch.cat(pieces) if whole is None else whole, places


def _end_to_end(pieces: Sequence[Tensor], size: int) -> Tensor | None:
    """The bytes of pieces that already lie so in one memory, as they lie; else None."""
    start, owner = pieces[0].storage_offset(), pieces[0].untyped_storage().data_ptr()
    at = start
    for piece in pieces:
        if piece.storage_offset() != at or piece.untyped_storage().data_ptr() != owner:
            return None
        at += piece.numel()
    return pieces[0].as_strided((size,), (1,), start)


@define(eq=False)
class Landing:
    """Where one entry's outputs land on the host."""

    _device: Device
    _block: Tensor
    _places: Mapping[str, ReadPlace] = field(factory=dict, init=False)

    def copy_out(self, packed: Tensor, places: Mapping[str, ReadPlace]) -> None:
        """Send packed outputs to the host: inside ``Device.run``, behind what computes them.

        Raises SealedError where they exceed the block.
        """
        if packed.nbytes > self._block.nbytes:
            raise SealedError(
                where=f"read-back of {', '.join(places)}",
                got=Words(f"{packed.nbytes} bytes in one step"),
                want=f"at most {self._block.nbytes} bytes, the size at build",
                fix="size the read-back from the widest step's outputs",
            )
        self._device.copy_out(packed, self._block[: packed.nbytes])
        self._places = places

    def arrays(self) -> dict[str, np.ndarray]:
        """Copies of what landed; right once the entry's event has passed."""
        block = self._block.numpy()
        return {
            name: np.frombuffer(block[at : at + size].tobytes(), dtype).reshape(shape)
            for name, (dtype, shape, at, size) in self._places.items()
        }


class ReadBack:
    """The ring of blocks that outputs land in."""

    def __init__(self, device: Device, depth: int, max_bytes: int) -> None:
        """``depth`` host blocks of ``max_bytes`` each."""
        self.depth = depth
        self._device = device
        self._ring: Sequence[Tensor] = [
            device.pinned((max_bytes,), torch.uint8) for _ in range(depth)
        ]
        self._next = 0

    def for_at_least(self, num_bytes: int) -> ReadBack:
        """This ring, or one like it whose blocks hold ``num_bytes``; before the first entry."""
        if num_bytes <= len(self._ring[0]):
            return self
        return ReadBack(self._device, self.depth, num_bytes)

    def lend(self) -> Landing:
        """The landing of the next entry; its block is used again ``depth`` entries later."""
        block = self._ring[self._next]
        self._next = (self._next + 1) % len(self._ring)
        return Landing(self._device, block)
