"""The tensors of a checkpoint folder: headers checked before anything is read, rows read on demand.

A safetensors file is eight bytes with the length of a JSON header, that header, and the tensors'
bytes without gaps. Everything a broken download can do to that is found here, from the header and
the file's size alone, and told with the file's name. Imports torch only to read rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import frozen

from mstar_core.errors import CheckpointError, Words

if TYPE_CHECKING:
    import torch

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
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


@frozen(kw_only=True)
class Checkpoint:
    """All tensors of a folder by name. Made by :func:`open_checkpoint`."""

    folder: Path
    tensors: Mapping[str, StoredTensor]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name to shape."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    @property
    def dtypes(self) -> dict[str, str]:
        """Name to the file's word for its dtype."""
        return {name: tensor.dtype for name, tensor in self.tensors.items()}

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows ``start`` to ``stop`` as stored: ``[stop - start, *rest]``, on the CPU."""
        import torch

        tensor = self.tensors[name]
        dtype = getattr(torch, TORCH_NAMES[tensor.dtype])
        shape = (stop - start, *tensor.shape[1:])
        buffer = bytearray((stop - start) * tensor.row_bytes)
        if not buffer:
            return torch.empty(shape, dtype=dtype)
        with tensor.file.open("rb") as file:
            file.seek(tensor.offset + start * tensor.row_bytes)
            num_read = file.readinto(buffer)
        if num_read != len(buffer):
            _refuse(tensor.file, f"{num_read} of {len(buffer)} bytes of {name}")
        return torch.frombuffer(buffer, dtype=dtype).view(shape)


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read the headers of a folder's safetensors files; no weights.

    ``model.safetensors`` if it is there, else the files of ``model.safetensors.index.json``, else
    every ``*.safetensors``. Raises CheckpointError naming the files that are missing, broken or
    give one tensor twice.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.exists():
        return _gathered(folder, [single])
    if index.exists():
        return _indexed(folder, index)
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return _gathered(folder, files)
    others = sorted(path.name for path in folder.glob("*.bin"))
    raise CheckpointError(
        where=str(folder),
        got=Words(f"no safetensors file, only {', '.join(others)}" if others else "no weights"),
        want=f"{SINGLE}, or shards with {INDEX}",
        fix="convert them to safetensors" if others else "fetch the checkpoint again",
    )


def _gathered(folder: Path, files: Iterable[Path]) -> Checkpoint:
    tensors: dict[str, StoredTensor] = {}
    twice: list[str] = []
    for file in files:
        for tensor in read_header(file):
            if tensor.name in tensors:
                first = tensors[tensor.name].file.name
                twice.append(f"{tensor.name} is in {first} and in {file.name}")
            tensors[tensor.name] = tensor
    if twice:
        raise CheckpointError(
            where=str(folder),
            got=Words("\n        ".join(["tensors that are given twice:", *twice])),
            want="each tensor in one file",
            fix="remove the files that belong to another checkpoint",
        )
    return Checkpoint(folder=folder, tensors=tensors)


def _indexed(folder: Path, index: Path) -> Checkpoint:
    try:
        placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        pairs = [(str(name), str(file)) for name, file in placed.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _refuse(index, f"no index of tensors ({type(error).__name__}: {error})")
    names = sorted({file for _, file in pairs})
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            where=str(index),
            got=Words("shards that are not in the folder: " + ", ".join(missing)),
            want="every shard that the index names",
            fix="fetch them; if the other shards are complete, the index is stale: "
            "delete it to load every *.safetensors file",
        )
    found = _gathered(folder, [folder / name for name in names])
    wrong = [
        f"{name} is not in {file}"
        for name, file in pairs
        if name not in found.tensors or found.tensors[name].file.name != Path(file).name
    ]
    wrong += [
        f"{name} is not in the index" for name in sorted(set(found.tensors) - dict(pairs).keys())
    ]
    if wrong:
        raise CheckpointError(
            where=str(index),
            got=Words("\n        ".join(["an index that differs from the shards:", *wrong])),
            want="each tensor in the shard that the index names",
            fix="fetch the shards again; if they are complete, the index is stale: "
            "delete it to load every *.safetensors file",
        )
    return found


def read_header(file: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file. Raises CheckpointError with its name and the cause."""
    if not file.is_file():
        _refuse(file, "a folder" if file.is_dir() else "no such file", "replace it with the file")
    size = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(8)
        if head + opened.read(len(LFS_POINTER) - 8) == LFS_POINTER:
            _refuse(
                file,
                f"{size} bytes that look like a Git LFS pointer",
                "fetch the file itself: git lfs pull, or download it again",
            )
        num_header = int.from_bytes(head, "little")
        if size < 8 or num_header > MAX_HEADER_BYTES:
            _refuse(file, f"{size} bytes that do not begin with a safetensors header")
        if 8 + num_header > size:
            _refuse(
                file, f"truncated: header wants {num_header} bytes, file has {size - 8} after 8"
            )
        opened.seek(8)
        text = opened.read(num_header)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        tensors = [_stored(name, told, file, 8 + num_header) for name, told in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _refuse(file, f"a damaged header ({type(error).__name__}: {error})")
    _check_bytes(file, tensors, header, size - 8 - num_header)
    return tensors


def _stored(name: str, told: Mapping[str, Any], file: Path, base: int) -> StoredTensor:
    if told["dtype"] not in TORCH_NAMES:
        _refuse(file, f"{name} of dtype {told['dtype']}", "use a checkpoint in bf16, fp16 or fp32")
    shape = tuple(told["shape"])
    if not all(type(axis) is int and axis >= 0 for axis in shape):
        _refuse(file, f"{name} of shape {list(shape)}")
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
            _refuse(
                file,
                f"a damaged header: {tensor.name} at bytes {first} to {last}, "
                f"where {tensor.nbytes} from {at} on are its own",
            )
        at = last
    if at > num_data:
        _refuse(file, f"truncated: header wants {at} bytes of tensors, file has {num_data}")
    if at < num_data:
        _refuse(file, f"{num_data - at} bytes after the last tensor")


def _refuse(file: Path, got: str, fix: str = "fetch the file again") -> NoReturn:
    raise CheckpointError(where=str(file), got=Words(got), want="a whole safetensors file", fix=fix)
