"""CUDA (or HIP) graphs: one memory pool for all buckets, captured on the device's own stream."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import torch
from attrs import define
from torch import Tensor

from mstar_core.engine.device_cuda import CudaDevice
from mstar_core.engine.graphs import CaptureRefused, Forward, Graph, GraphBackend
from mstar_core.errors import DeviceFault, Words


@define(kw_only=True, eq=False)
class CudaGraph(Graph):
    """A captured CUDA graph. Its outputs lie in the pool and are kept as long as it is."""

    name: str
    outputs: Mapping[str, Tensor]
    num_bytes: int
    _graph: torch.cuda.CUDAGraph

    def replay(self) -> None:
        try:
            self._graph.replay()
        except RuntimeError as error:
            raise DeviceFault(
                where=f"graph {self.name}",
                got=Words(_first_line(error)),
                want="a replay that is launched",
                fix="look at the first error in the log, and start the engine again",
            ) from error


class CudaGraphs(GraphBackend):
    """Captures on ``device``. Graphs share one pool: they never run at the same time."""

    name = "cuda"

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._index: int = device.torch_device.index
        self._pool = torch.cuda.graph_pool_handle()
        self._broken: list[torch.cuda.CUDAGraph] = []

    def capture(self, name: str, fn: Forward, inputs: Sequence[Tensor]) -> CudaGraph:
        self._device.synchronize()
        self._device.run(lambda: _discard(fn))
        self._device.synchronize()
        reserved = torch.cuda.memory_reserved(self._device.torch_device)
        spare = torch.cuda.default_generators[self._index].clone_state()
        graph = torch.cuda.CUDAGraph()
        with (
            _own_stream(self._device),
            _no_collection(),
            torch.no_grad(),
            warnings.catch_warnings(),
        ):
            # a forward that broke off before its first launch: its own error says more
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")
            try:
                # thread_local: another thread's copy must not break the capture
                with torch.cuda.graph(
                    graph,
                    pool=self._pool,
                    stream=self._device.stream,
                    capture_error_mode="thread_local",
                ):
                    outputs = dict(fn())
            except RuntimeError as error:
                self._clear_up(graph, spare)
                raise _refused(name, error) from error
        self._check_outputs(name, outputs, inputs)
        grown = torch.cuda.memory_reserved(self._device.torch_device) - reserved
        return CudaGraph(name=name, outputs=outputs, num_bytes=max(0, grown), graph=graph)

    def _clear_up(self, graph: torch.cuda.CUDAGraph, spare: torch.Generator) -> None:
        """Undo what a capture that broke off leaves behind in torch.

        Its end is not reached, so the device allocator goes on serving the stream from the pool,
        the host allocator holds the pool's number and asks the graph whether it still captures,
        and the default generator believes that it is captured, and raises.
        """
        self._broken.append(graph)
        with suppress(RuntimeError):  # where the end was reached after all
            torch._C._cuda_endAllocateToPool(self._index, self._pool)
        self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.default_generators[self._index].graphsafe_set_state(spare)

    @staticmethod
    def _check_outputs(name: str, outputs: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> None:
        fixed = {t.untyped_storage().data_ptr() for t in inputs}
        for output, tensor in outputs.items():
            if tensor.untyped_storage().data_ptr() in fixed:
                raise CaptureRefused(
                    code="output",
                    where=f"graph {name}, output {output} {list(tensor.shape)}",
                    got=Words("memory that is an input"),
                    want="an output that is made inside",
                    fix="return a copy (clone)",
                )


@contextmanager
def _own_stream(device: CudaDevice) -> Iterator[None]:
    """The device's stream, and the former one again even where a capture breaks off."""
    former = torch.cuda.current_stream(device.torch_device)
    torch.cuda.set_stream(device.stream)
    try:
        yield
    finally:
        torch.cuda.set_stream(former)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: to destroy a former engine's graph would break the capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _discard(fn: Forward) -> None:
    fn()


def _refused(name: str, error: RuntimeError) -> CaptureRefused:
    """The refusal for what broke a capture: the first error, not those that follow from it."""
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    if not isinstance(first, RuntimeError) or isinstance(first, torch.OutOfMemoryError):
        raise first
    return CaptureRefused(
        code="capture-failed",
        where=f"graph {name}",
        got=Words(_first_line(first)),
        want="a forward without host reads, synchronisation and foreign streams",
        fix="capture it on a CPU with the recorder, which names the operation and the line",
    )


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
