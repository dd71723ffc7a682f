"""One safetensors file: its header checked before anything is read, free of torch.

The file is eight bytes with the length of a JSON header, that header, and the tensors' bytes
without gaps. Everything a broken download can do to that is found here, from the header and the
file's size alone, and told with the file's name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from attrs import frozen

from mstar_core.errors import CheckpointError, Words

LFS_POINTER = b"version https://git-lfs"
MAX_HEADER_BYTES = 100_000_000

TORCH_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}


@frozen(kw_only=True)
class StoredTensor:
    """Where one tensor lies, row-major, in one file."""

    name: str
    dtype: str
    """The file's own word: ``BF16``, ``F32``, …"""
    shape: tuple[int, ...]
    file: Path
    offset: int
    """Its first byte in the file."""

    @property
    def num_rows(self) -> int:
        """Length of the first axis; a scalar is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * _ITEM_BYTES.get(self.dtype, 1)

    @property
    def nbytes(self) -> int:
        return self.num_rows * self.row_bytes


def read_header(file: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file. Raises CheckpointError with its name and the cause."""
    try:
        return _header(file)
    except OSError as error:
        refuse(file, error.strerror or str(error), "check its permissions, and what it is on")


def _header(file: Path) -> list[StoredTensor]:
    if not file.is_file():
        refuse(file, "a folder" if file.is_dir() else "no such file", "replace it with the file")
    size = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(8)
        if head + opened.read(len(LFS_POINTER) - 8) == LFS_POINTER:
            refuse(
                file,
                f"{size} bytes that look like a Git LFS pointer",
                "fetch the file itself: git lfs pull, or download it again",
            )
        num_header = int.from_bytes(head, "little")
        if size < 8 or num_header > MAX_HEADER_BYTES:
            refuse(file, f"{size} bytes that do not begin with a safetensors header")
        if 8 + num_header > size:
            refuse(file, f"truncated: header wants {num_header} bytes, file has {size - 8} after 8")
        opened.seek(8)
        text = opened.read(num_header)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        tensors = [_stored(name, told, file, 8 + num_header) for name, told in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        refuse(file, f"a damaged header ({type(error).__name__}: {error})")
    _check_bytes(file, tensors, header, size - 8 - num_header)
    return tensors


def _stored(name: str, told: Mapping[str, Any], file: Path, base: int) -> StoredTensor:
    if told["dtype"] not in TORCH_NAMES:
        refuse(file, f"{name} of dtype {told['dtype']}", "use a checkpoint in bf16, fp16 or fp32")
    shape = tuple(told["shape"])
    if not all(type(axis) is int and axis >= 0 for axis in shape):
        refuse(file, f"{name} of shape {list(shape)}")
    offset = base + int(told["data_offsets"][0])
    return StoredTensor(name=name, dtype=told["dtype"], shape=shape, file=file, offset=offset)


def _check_bytes(
    file: Path, tensors: list[StoredTensor], header: Mapping[str, Any], num_data: int
) -> None:
    """The tensors lie one behind the other and end where the file ends."""
    at = 0
    for tensor in sorted(tensors, key=lambda each: (each.offset, each.nbytes)):
        first, last = header[tensor.name]["data_offsets"]
        if first != at or last - first != tensor.nbytes:
            refuse(
                file,
                f"a damaged header: {tensor.name} at bytes {first} to {last}, "
                f"where {tensor.nbytes} from {at} on are its own",
            )
        at = last
    if at > num_data:
        refuse(file, f"truncated: header wants {at} bytes of tensors, file has {num_data}")
    if at < num_data:
        refuse(file, f"{num_data - at} bytes after the last tensor")


def refuse(file: Path, got: str, fix: str = "fetch the file again") -> NoReturn:
    """Raise the CheckpointError of a file that cannot be used."""
    raise CheckpointError(where=str(file), got=Words(got), want="a whole safetensors file", fix=fix)
