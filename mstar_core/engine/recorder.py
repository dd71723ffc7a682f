"""The CPU's graph backend: records the tensor operations of a forward and replays exactly those.

What would be stale, baked in or moved under a CUDA graph is then wrong in the same way on a CPU:

- no Python of the model runs at replay, so a host value is what it was at capture;
- memory made inside that is not written as it is made is filled with NaN (ints with a large
  number) before each replay, so what a replay does not write is not there;
- reading a tensor from outside the fixed memory, reading a value on the host, drawing random
  numbers or resizing is refused at capture, with the operation and the line of code.

Operations reach a dispatch mode; the few reads that never get there (``tolist``, ``numpy`` …) are
caught by a function mode; kernels launched outside the dispatcher come through the launch door.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from mstar_core.engine.graphs import Forward, GraphBackend
from mstar_core.engine.recorded import RecordedGraph, address
from mstar_core.engine.recording import HostReads, Recording
from mstar_core.engine.staging import STAGING
from mstar_core.fixed import FixedBuffers
from mstar_core.launch import door


class Recorder(GraphBackend):
    """Captures on a CPU, for submodules whose memory is ``buffers`` and their own parameters."""

    name = "recorder"

    def __init__(self, buffers: FixedBuffers, modules: Iterable[nn.Module] = ()) -> None:
        self._buffers = buffers
        self._modules = tuple(modules)

    def capture(self, name: str, fn: Forward, inputs: Sequence[Tensor]) -> RecordedGraph:
        known = {address(t) for t in inputs} | self._buffers.storages(without=STAGING)
        for module in self._modules:
            known |= {address(t) for t in (*module.parameters(), *module.buffers())}
        recording = Recording(name, frozenset(known))
        with torch.inference_mode(False), torch.no_grad():
            fn()
            with door(recording.launch), HostReads(recording), recording:
                outputs = dict(fn())
            return recording.graph(outputs)
