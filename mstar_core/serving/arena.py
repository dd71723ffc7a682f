"""Shared memory for large inputs: one file in memory, without a name, for each API process.

The API process gives out blocks and takes them back as requests end; the engine process reads. The
size is sealed, so that neither can have memory taken away under its feet.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from bisect import bisect, insort
from math import prod

import numpy as np

from mstar_core.serving.messages import Array, FrameError

ALIGN = 64
"""Blocks begin at multiples of it, so that any dtype is aligned."""
GIVE_BACK = 256 << 10
"""A block of at least so many bytes is given back to the system when it is freed."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def make_arena(size: int) -> int:
    """A descriptor of ``size`` bytes of memory, rounded up to a page; it takes none until used."""
    fd = os.memfd_create("mstar-media", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


class Arena:
    """The side that writes. Blocks are found first-fit; neighbours that are free are one."""

    def __init__(self, fd: int) -> None:
        """``fd`` is of :func:`make_arena`; it may be closed afterwards."""
        self.size = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, self.size)
        self._free = [(0, self.size)]
        """(start, bytes), by start."""
        self._taken: dict[int, int] = {}

    @property
    def num_taken(self) -> int:
        """Blocks that are in use."""
        return len(self._taken)

    @property
    def free_bytes(self) -> int:
        """Bytes in no block."""
        return sum(size for _, size in self._free)

    def put(self, array: np.ndarray) -> int | None:
        """Copy ``array`` (of a dtype in ``DTYPES``) into a block; its start, or None: no room."""
        start = self.take(array.nbytes)
        if start is not None:
            place = np.frombuffer(self._memory, array.dtype, array.size, start)
            np.copyto(place.reshape(array.shape), array)
        return start

    def take(self, nbytes: int) -> int | None:
        """The start of a block of at least ``nbytes``, or None where none fits."""
        need = max(-(-nbytes // ALIGN), 1) * ALIGN
        for i, (start, size) in enumerate(self._free):
            if size >= need:
                self._free[i : i + 1] = [(start + need, size - need)] if size > need else []
                self._taken[start] = need
                return start
        return None

    def free(self, start: int) -> None:
        """Give a block back. Raises KeyError for what is none."""
        size = self._taken.pop(start)
        if size >= GIVE_BACK:
            self._give_back(start, start + size)
        i = bisect(self._free, (start, 0))
        if i < len(self._free) and self._free[i][0] == start + size:
            size += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == start:
            start, before = self._free.pop(i - 1)
            size += before
        insort(self._free, (start, size))

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.close()

    def _give_back(self, start: int, end: int) -> None:
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end // mmap.PAGESIZE * mmap.PAGESIZE
        self._memory.madvise(mmap.MADV_REMOVE, first, last - first)


class ArenaView:
    """The side that reads. Views keep the memory mapped for as long as they live."""

    def __init__(self, fd: int) -> None:
        """``fd`` may be closed afterwards. Raises FrameError for memory that could shrink."""
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError:
            seals = 0
        if not seals & fcntl.F_SEAL_SHRINK:
            raise FrameError("shared memory that is not sealed")
        self.size = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, self.size, prot=mmap.PROT_READ)

    def array(self, given: Array) -> np.ndarray:
        """An input, read-only, where it lies. Raises FrameError for one outside the memory."""
        data = given.data
        source, start = (data, 0) if isinstance(data, bytes) else (self._memory, data)
        if start % ALIGN or start + given.nbytes > len(source):
            raise FrameError(f"{given.nbytes} bytes at {start} of {len(source)}")
        try:
            return np.frombuffer(source, given.dtype, prod(given.shape), start).reshape(given.shape)
        except ValueError as error:  # a shape that no array has
            raise FrameError(str(error)) from None
