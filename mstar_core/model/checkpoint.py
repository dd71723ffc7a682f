"""The tensors of a checkpoint folder by name; rows are read on demand, and torch only then."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from mstar_core.errors import CheckpointError, Words
from mstar_core.model.safetensors_file import TORCH_NAMES, StoredTensor, read_header, refuse

if TYPE_CHECKING:
    import torch

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


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
            refuse(tensor.file, f"{num_read} of {len(buffer)} bytes of {name}")
        return torch.frombuffer(buffer, dtype=dtype).view(shape)


def open_checkpoint(folder: Path, inner: Iterable[str] = ()) -> Checkpoint:
    """Read the headers of a folder's safetensors files, and of folders ``inner`` to it; no weights.

    ``model.safetensors`` if it is there, else the files of ``model.safetensors.index.json``, else
    every ``*.safetensors``. Raises CheckpointError naming the files that are missing, broken or
    give one tensor twice.
    """
    found = [_opened(folder), *(_opened(folder / name) for name in inner)]
    return found[0] if len(found) == 1 else _joined(folder, found)


def _opened(folder: Path) -> Checkpoint:
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


def _joined(folder: Path, parts: Iterable[Checkpoint]) -> Checkpoint:
    return _once(folder, (tensor for part in parts for tensor in part.tensors.values()))


def _gathered(folder: Path, files: Iterable[Path]) -> Checkpoint:
    return _once(folder, (tensor for file in files for tensor in read_header(file)))


def _once(folder: Path, given: Iterable[StoredTensor]) -> Checkpoint:
    tensors: dict[str, StoredTensor] = {}
    twice: list[str] = []
    for tensor in given:
        if tensor.name in tensors:
            first, file = (t.file.relative_to(folder) for t in (tensors[tensor.name], tensor))
            twice.append(f"{tensor.name} is in {first} and in {file}")
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
        refuse(index, f"no index of tensors ({type(error).__name__}: {error})")
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
