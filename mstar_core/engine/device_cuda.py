"""A CUDA (or HIP) device: a stream of its own, page-locked host memory, events with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mstar_core.engine.device import Device, Event, Mark
from mstar_core.errors import DeviceFault, Words

SPIN_S = 0.002
"""How long a wait polls without sleeping: about one decode step. A sleep costs 60 us or more."""


class CudaEvent(Event):
    """A CUDA event, polled so that a device that hangs is noticed."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(stream)

    def done(self) -> bool:
        try:
            return bool(self._event.query())  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise DeviceFault(
                where="device stream",
                got=Words(str(error).splitlines()[0]),
                want="every launch and copy to succeed",
                fix="look at the first error in the log, and start the engine again",
            ) from error

    def wait(self, timeout_s: float) -> None:
        start = time.monotonic()
        while not self.done():
            waited_s = time.monotonic() - start
            if waited_s > timeout_s:
                raise DeviceFault(
                    where="device stream",
                    got=Words(f"an event that has not passed after {timeout_s:g} s"),
                    want="a step to end within its deadline",
                    fix="start the engine again, or raise the deadline if steps are this long",
                )
            time.sleep(0 if waited_s < SPIN_S else 50e-6)


class CudaMark(Mark):
    """A CUDA event that keeps its time."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._event.record(stream)

    def us_since(self, earlier: Mark) -> float:
        if not isinstance(earlier, CudaMark):
            raise TypeError(f"a {type(earlier).__name__} of another device")
        return float(earlier._event.elapsed_time(self._event)) * 1e3


class CudaDevice(Device):
    """One GPU. All copies and launches go to one non-blocking stream, whatever thread calls."""

    def __init__(self, torch_device: torch.device) -> None:
        index = torch_device.index
        self.torch_device = torch.device(
            "cuda", torch.cuda.current_device() if index is None else index
        )
        self.stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.zeros(tuple(shape), dtype=dtype, pin_memory=True)

    def copy_in(self, host: Tensor, dev: Tensor) -> None:
        with torch.cuda.stream(self.stream):
            dev.copy_(host, non_blocking=True)

    def run(self, fn: Callable[[], None]) -> None:
        with torch.cuda.stream(self.stream), torch.no_grad():
            fn()

    def copy_out(self, dev: Tensor, host: Tensor) -> None:
        with torch.cuda.stream(self.stream):
            host.copy_(dev, non_blocking=True)

    def record(self) -> Event:
        with torch.cuda.stream(self.stream):
            return CudaEvent(self.stream)

    def mark(self) -> Mark:
        return CudaMark(self.stream)

    def trim(self) -> None:
        torch.cuda.empty_cache()

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)
