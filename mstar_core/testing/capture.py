"""Whether a forward survives capture: the same steps run eagerly, unpadded, and replayed, padded.

A capture bug shows as a refusal (:class:`~mstar_core.engine.graphs.CaptureRefused`, by its code),
as memory that moved (:class:`~mstar_core.errors.SealedError`), or as :class:`ReplayDiffers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from attrs import define, frozen
from torch import Tensor, nn

from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.recorder import Recorder
from mstar_core.engine.staging import Key, ReadBack, Staging, StaticBlock, pack_reads
from mstar_core.fixed import FixedBuffers

Arrays = Mapping[Key, np.ndarray]


@define(eq=False)
class ReplayDiffers(AssertionError):
    """A replay is not the eager forward."""

    check: str
    """``unwritten`` (NaN where eager has none), ``shape``, ``output`` or ``pool``."""
    detail: str

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}"


@frozen(kw_only=True, eq=False)
class CaptureCase:
    """A forward over pools, and steps that show whether its capture is right.

    ``forward`` maps a step's tensors to named outputs whose first axis is the step's rows.
    ``pad`` takes a step's arrays to the bucket's size; a step of no rows fixes the capture.
    Place 0 of the first axis of every pool is where padding writes; it is not compared.
    """

    buffers: FixedBuffers
    pools: Mapping[str, Tensor]
    module: nn.Module
    forward: Callable[[Mapping[Key, Tensor]], dict[str, Tensor]]
    pad: Callable[[Arrays], Arrays]
    empty_step: Arrays
    before_step: Callable[[int], None] = lambda number: None
    """What the host does before step ``number`` is staged, eager or not (0 before the capture)."""


def check_capture(case: CaptureCase, steps: Sequence[Arrays], lag: Lag | None = None) -> None:
    """Capture ``case``, run every step eagerly and replayed, and compare outputs and pools.

    Raises CaptureRefused, SealedError or ReplayDiffers.
    """
    device = CpuDevice(lag)
    case.before_step(0)
    block = StaticBlock.claim(case.buffers, "bucket", case.pad(case.empty_step))
    Staging(device, case.buffers, 1, block.layout.num_bytes, name="warm").stage(
        case.pad(case.empty_step), block
    )
    device.synchronize()
    recorder = Recorder(case.buffers, [case.module])
    graph = recorder.capture("bucket", lambda: case.forward(block.views), [block.block])
    staging = Staging(device, case.buffers, 2, block.layout.num_bytes)
    read_back = ReadBack(device, 2, max(1, graph.num_bytes + 16 * len(graph.outputs)))
    for number, arrays in enumerate(steps, 1):
        case.before_step(number)
        before = {name: pool.clone() for name, pool in case.pools.items()}
        want = _eager(case, arrays)
        want_pools = {name: pool.clone() for name, pool in case.pools.items()}
        for name, pool in case.pools.items():
            pool.copy_(before[name])
        landing = read_back.lend()
        staging.stage(case.pad(arrays), block)
        device.run(graph.replay)
        device.run(lambda to=landing: to.copy_out(*pack_reads(graph.outputs)))  # type: ignore[misc]
        device.record().wait(10.0)
        _compare(number, landing.arrays(), want)
        _compare_pools(number, case.pools, want_pools)


def _eager(case: CaptureCase, arrays: Arrays) -> dict[str, np.ndarray]:
    tensors = {key: torch.from_numpy(array.copy()) for key, array in arrays.items()}
    with torch.no_grad():
        return {name: t.numpy().copy() for name, t in case.forward(tensors).items()}


def _compare(number: int, got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> None:
    for name, wanted in want.items():
        found, what = got[name][: len(wanted)], f"step {number}, output {name}"
        if found.shape != wanted.shape:
            raise ReplayDiffers("shape", f"{what}: {found.shape}, want {wanted.shape}")
        if np.isnan(found).any() and not np.isnan(wanted).any():
            raise ReplayDiffers("unwritten", f"{what}: {found}, want {wanted}")
        if not np.array_equal(found, wanted, equal_nan=True):
            raise ReplayDiffers("output", f"{what}: {found}, want {wanted}")


def _compare_pools(number: int, got: Mapping[str, Tensor], want: Mapping[str, Tensor]) -> None:
    for name, wanted in want.items():
        same = torch.isclose(got[name][1:], wanted[1:], rtol=0, atol=0, equal_nan=True)
        places = (~same.reshape(len(same), -1).all(1)).nonzero().flatten() + 1
        if len(places):
            raise ReplayDiffers("pool", f"step {number}, pool {name}, places {places.tolist()}")
