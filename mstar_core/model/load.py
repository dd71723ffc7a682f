"""Fill modules: from a checkpoint, block by block, or with seeded noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any, Protocol, runtime_checkable

import torch
from attrs import frozen
from torch import Tensor, nn

from mstar_core.errors import CheckpointError, Words
from mstar_core.model.checkpoint import Checkpoint
from mstar_core.model.weights import WeightMap, owned_tensors, plan_weights

BLOCK_BYTES = 64 << 20
"""Most bytes of a stored tensor that are in memory at once beside the parameters."""

Progress = Callable[[int, int], None]
"""Bytes done, bytes in all."""


@runtime_checkable
class FinalizesWeights(Protocol):
    """A module that packs, shards or derives something once all weights are there."""

    def finalize_weights(self) -> None: ...


@runtime_checkable
class InitsRandomly(Protocol):
    """A module that knows sensible values for its own parameters (not its children's)."""

    def init_random(self, generator: torch.Generator) -> None: ...


@frozen(kw_only=True)
class LoadReport:
    """What was loaded."""

    num_tensors: int
    """Parameters and persistent buffers."""
    num_bytes: int
    """Their memory."""
    seconds: float
    set_aside: tuple[str, ...] = ()
    """Stored tensors that are known and not used."""


def load_weights(
    modules: Mapping[str, nn.Module],
    maps: Mapping[str, WeightMap],
    checkpoint: Checkpoint,
    device: torch.device | str,
    progress: Progress | None = None,
) -> LoadReport:
    """Fill ``modules`` (built on meta or on ``device``) from ``checkpoint`` and finalise them.

    Each parameter is allocated once, on ``device``, in its own dtype. All names and shapes are
    checked before the first is changed: see :func:`plan_weights` for the CheckpointError.
    """
    started = time.perf_counter()
    plan = plan_weights(
        modules,
        maps,
        checkpoint.shapes,
        dtypes=checkpoint.dtypes,
        where=str(checkpoint.folder),
    )
    stored = checkpoint.tensors
    pieces = [piece for fill in plan.fills for piece in fill.pieces]
    total = sum((piece.stop - piece.start) * stored[piece.name].row_bytes for piece in pieces)
    done = num_bytes = 0
    targets = {name: materialise(module, device) for name, module in modules.items()}
    for fill in plan.fills:
        target = targets[fill.module][fill.target]
        num_bytes += target.nbytes
        rows = target.detach() if target.ndim else target.detach().view(1)
        for piece in fill.pieces:
            step = max(1, BLOCK_BYTES // max(1, stored[piece.name].row_bytes))
            for start in range(piece.start, piece.stop, step):
                stop = min(start + step, piece.stop)
                block = checkpoint.rows(piece.name, start, stop)
                at = piece.at + start - piece.start
                rows[at : at + len(block)].copy_(block.view(len(block), *rows.shape[1:]))
                done += block.nbytes
                if progress is not None:
                    progress(done, total)
    finalise(modules)
    return LoadReport(
        num_tensors=len(plan.fills),
        num_bytes=num_bytes,
        seconds=time.perf_counter() - started,
        set_aside=plan.set_aside,
    )


def random_weights(
    modules: Mapping[str, nn.Module], seed: int, device: torch.device | str
) -> LoadReport:
    """Fill ``modules`` with seeded noise, for ``load: random``; the same each time on a device.

    A module with ``init_random`` sets its own parameters. Others get: matrices normal with
    standard deviation 1/sqrt(inputs), vectors named ``weight`` one, all else zero.
    """
    started = time.perf_counter()
    generator = torch.Generator(device=device).manual_seed(seed)
    num_tensors = num_bytes = 0
    with torch.no_grad():
        for root in modules.values():
            owned = materialise(root, device)
            num_tensors += len(owned)
            num_bytes += sum(tensor.nbytes for tensor in owned.values())
            for name, tensor in owned.items():
                _fill_randomly(name, tensor, generator)
            for module in root.modules():
                if isinstance(module, InitsRandomly):
                    module.init_random(generator)
    finalise(modules)
    seconds = time.perf_counter() - started
    return LoadReport(num_tensors=num_tensors, num_bytes=num_bytes, seconds=seconds)


def materialise(module: nn.Module, device: torch.device | str) -> dict[str, Tensor]:
    """Give every parameter and persistent buffer on meta memory on ``device``; names to tensors.

    One that several modules share stays shared.
    """
    made: dict[int, Tensor] = {}
    for child in module.modules():
        computed = child._non_persistent_buffers_set
        for slots in (child._parameters, child._buffers):
            for name, tensor in slots.items():
                if tensor is None or not tensor.is_meta or name in computed:
                    continue
                if id(tensor) not in made:
                    empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                    is_parameter = isinstance(tensor, nn.Parameter)
                    made[id(tensor)] = (
                        nn.Parameter(empty, requires_grad=False) if is_parameter else empty
                    )
                slots[name] = made[id(tensor)]  # type: ignore[assignment]
    return owned_tensors(module)


def finalise(modules: Mapping[str, nn.Module]) -> None:
    """Call ``finalize_weights`` of each module that has it, inner ones first.

    Raises CheckpointError for a tensor that is still without memory: a non-persistent buffer of a
    module built on meta has to be computed there.
    """
    for name, root in modules.items():
        for module in reversed(list(root.modules())):
            if isinstance(module, FinalizesWeights):
                module.finalize_weights()
        tensors: list[tuple[str, Any]] = [*root.named_parameters(), *root.named_buffers()]
        empty = [f"{name}.{each}" for each, tensor in tensors if tensor.is_meta]
        if empty:
            raise CheckpointError(
                where=f"node {name}",
                got=Words(f"tensors that nothing fills: {', '.join(empty)}"),
                want="every tensor with values once the weights are loaded",
                fix="compute them in finalize_weights, or make them persistent",
            )


def _fill_randomly(name: str, tensor: Tensor, generator: torch.Generator) -> None:
    if tensor.ndim > 1 and tensor.is_floating_point():
        inputs = tensor[0].numel()
        tensor.normal_(0.0, 1 / sqrt(max(1, inputs)), generator=generator)
    else:
        tensor.fill_(1 if name.rpartition(".")[2] == "weight" else 0)
