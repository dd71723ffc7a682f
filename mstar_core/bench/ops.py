"""Time of each operation by each backend beside its floor, in one captured graph.

A graph runs the operation on as many inputs of their own as pass the caches together, as the layers
of a model would. The floor is the larger of bytes over the bandwidth of a copy and of operations
over the rate of one large product, both measured in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from attrs import define, frozen
from torch import Tensor

from mstar_core.bench.op_subjects import Call, Sizes, Subject, rand, subjects
from mstar_core.engine.device import Device, open_device
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.plugins.registry import BackendRegistry

ROUNDS = 5
ROUND_S = 0.01
"""A round replays for so long."""
PAST_CACHES = 192 << 20
MOST_COPIES = 160


@frozen(kw_only=True)
class OpTime:
    """One operation at one shape, by one backend."""

    operation: str
    backend: str
    shape: str
    us: float
    """Median over the rounds."""
    spread: float
    """Of the rounds: slowest less fastest, over the median."""
    floor_us: float
    refused: str = ""
    """Why the backend does not take it, or not in a graph, or what it raised; without a time."""

    @property
    def ratio(self) -> float:
        """Of the time to the floor."""
        return self.us / self.floor_us


@frozen(kw_only=True)
class Limits:
    """What this device reaches."""

    bytes_per_us: float
    flops_per_us: float

    def floor_us(self, subject: Subject) -> float:
        """No implementation that moves and computes what it must is faster."""
        moved = subject.num_bytes / self.bytes_per_us
        return max(moved, subject.num_flops / self.flops_per_us)


@define(kw_only=True, eq=False)
class Stopwatch:
    """Times calls on one device: in a graph on a GPU, one after the other on a CPU."""

    device: Device

    def us(self, calls: Sequence[Callable[[], object]]) -> tuple[float, float]:
        """``(median, spread)`` of one call."""
        run = self._together(calls)
        run()
        self.device.synchronize()
        once_s = self._timed(run, 1)
        times = max(1, int(ROUND_S / max(once_s, 1e-7)))
        rounds = [self._timed(run, times) / times / len(calls) for _ in range(ROUNDS)]
        median = statistics.median(rounds)
        return median * 1e6, (max(rounds) - min(rounds)) / median

    def _timed(self, run: Callable[[], object], times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            run()
        self.device.synchronize()
        return time.perf_counter() - start

    def _together(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        def every() -> Mapping[str, Tensor]:
            for call in calls:
                call()
            return {}

        device = self.device
        if device.torch_device.type == "cpu":
            return every
        from mstar_core.engine.device_cuda import CudaDevice
        from mstar_core.engine.graphs_cuda import CudaGraphs

        graph = CudaGraphs(cast(CudaDevice, device)).capture("bench", every, ())
        return lambda: device.run(graph.replay)


def limits(watch: Stopwatch, dtype: torch.dtype) -> Limits:
    """Bandwidth of a copy and rate of a product here."""
    device = watch.device.torch_device
    small = device.type == "cpu"
    source = torch.zeros(1 << (22 if small else 29), device=device)
    target, side = torch.empty_like(source), 256 if small else 8192
    a, b = (rand(device, dtype, side, side) for _ in range(2))
    # a kernel: a captured copy is left to an engine of the device, which is slower
    copy_us, _ = watch.us([lambda: torch.neg(source, out=target)])
    product_us, _ = watch.us([lambda: a @ b])
    return Limits(bytes_per_us=2 * source.nbytes / copy_us, flops_per_us=2 * side**3 / product_us)


def measure(
    backends: BackendRegistry,
    device_name: str,
    dtype: torch.dtype,
    rows: Sequence[int],
    only: Sequence[str] = (),
    sizes: Sizes | None = None,
) -> Iterator[OpTime]:
    """Every operation (of ``only``, where given) at every shape, by every backend there is.

    The device is opened at once. Raises ConfigError for one that is not there.
    """
    watch = Stopwatch(device=open_device(device_name))
    made = subjects(sizes or Sizes(), rows, dtype.itemsize)
    wanted = (each for each in made if not only or each.operation in only)
    return _measured(watch, backends, dtype, wanted)


def _measured(
    watch: Stopwatch, backends: BackendRegistry, dtype: torch.dtype, wanted: Iterable[Subject]
) -> Iterator[OpTime]:
    here = limits(watch, dtype)
    kind = watch.device.torch_device.type
    for subject in wanted:
        request = BindRequest(
            operation=subject.operation, device=kind, dtype=dtype, geometry=subject.geometry
        )
        for offer in backends.candidates(subject.operation):
            yield _one(watch, offer.load(), request, subject, here)


def _one(
    watch: Stopwatch, backend: Backend, request: BindRequest, subject: Subject, here: Limits
) -> OpTime:
    about: dict[str, Any] = {
        "operation": subject.operation,
        "backend": backend.name,
        "shape": subject.shape,
        "floor_us": here.floor_us(subject),
    }
    try:
        refusal = backend.available(request.device) or backend.supports(request)
        refusal = refusal or backend.capture_refusal(subject.bucket)  # it would be timed in a graph
        if refusal is not None:
            return OpTime(**about, us=0.0, spread=0.0, refused=str(refusal))
        us, spread = watch.us(_calls(watch, backend.bind(request), request, subject))
    except Exception as error:  # a kernel that fails is a line of the table, not its end
        watch.device.trim()
        return OpTime(**about, us=0.0, spread=0.0, refused=repr(error)[:300])
    watch.device.trim()
    return OpTime(**about, us=us, spread=spread)


def _calls(
    watch: Stopwatch, ops: Any, request: BindRequest, subject: Subject
) -> list[Callable[[], object]]:
    copies = min(MOST_COPIES, max(1, PAST_CACHES // max(1, subject.num_bytes)))
    device = watch.device.torch_device
    made: list[Call] = [subject.make(device, request.dtype) for _ in range(copies)]
    return [lambda call=call: call(ops) for call in made]  # type: ignore[misc]
