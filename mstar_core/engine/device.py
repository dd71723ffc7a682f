"""The device as the engine sees it: one stream of copies and launches, and events to wait for.

Everything that a step does on the device goes through here, in the order it was issued::

    copy_in(block) → run(forward) → copy_out(row) → record() = one entry

On a GPU these calls return at once. On a CPU they run at once, unless the device has *lag*: then
they wait in a queue and run when something waits for a later event, or at a moment drawn from a
seed. A host buffer that is written again too early, or read too early, is then wrong on a CPU in
the same way as on a GPU.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

import torch
from attrs import define, field, frozen
from torch import Tensor

from mstar_core.engine.device_memory import check_gpu


class Event(ABC):
    """A point in the device's stream: everything issued before it."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the device has passed this point. Never blocks."""

    @abstractmethod
    def wait(self, timeout_s: float) -> None:
        """Block until the device has passed this point.

        Raises :class:`~mstar_core.errors.DeviceFault` after ``timeout_s`` seconds or when the
        device reports an error, and whatever a deferred ``run`` of this entry raised.
        """


class Mark(ABC):
    """A point in the device's stream whose moment can be told."""

    @abstractmethod
    def us_since(self, earlier: Mark) -> float:
        """Microseconds of the device's clock between two marks that it has passed."""


class Device(ABC):
    """One stream. Calls take effect in the order they are made; host memory may be used later."""

    torch_device: torch.device

    @abstractmethod
    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Zeroed host memory that asynchronous copies may read and write."""

    @abstractmethod
    def copy_in(self, host: Tensor, dev: Tensor) -> None:
        """``dev[...] = host``. ``host`` must not change before a later event has passed."""

    @abstractmethod
    def run(self, fn: Callable[[], None]) -> None:
        """Call ``fn`` in stream order, without autograd.

        What ``fn`` computes may be there only after a later event; it may itself call
        :meth:`copy_out`. What it raises is raised here, or by the ``wait`` of the next event.
        """

    @abstractmethod
    def copy_out(self, dev: Tensor, host: Tensor) -> None:
        """``host[...] = dev``. ``host`` holds it once a later event has passed."""

    @abstractmethod
    def record(self) -> Event:
        """The end of an entry: an event behind everything issued so far."""

    @abstractmethod
    def mark(self) -> Mark:
        """A mark behind everything issued so far."""

    def trim(self) -> None:
        """Give back what the device's allocator keeps and nobody uses. Nothing to do on a CPU."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block until the device is idle, also of work issued outside this class.

        Called once weights are loaded and buffers claimed, before the first entry.
        """


@frozen
class Lag:
    """How a CPU device lags: by a seed, or (None) as far as it can, until it is waited for."""

    seed: int | None = None


@define(eq=False)
class _CpuEvent(Event):
    device: CpuDevice
    passed: bool = False
    error: Exception | None = None

    def done(self) -> bool:
        self.device.tick()
        return self.passed

    def wait(self, timeout_s: float) -> None:
        self.device.run_until(self)
        if self.error is not None:
            raise self.error


@define(eq=False)
class _CpuMark(Mark):
    at_s: float = 0.0

    def us_since(self, earlier: Mark) -> float:
        if not isinstance(earlier, _CpuMark):
            raise TypeError(f"a {type(earlier).__name__} of another device")
        return (self.at_s - earlier.at_s) * 1e6

    def pass_now(self) -> None:
        self.at_s = time.perf_counter()


@define(eq=False)
class CpuDevice(Device):
    """The CPU: at once, or with lag. The same seed and calls give the same moments."""

    lag: Lag | None = None
    torch_device: torch.device = field(factory=lambda: torch.device("cpu"), init=False)
    _queue: deque[Callable[[], None] | _CpuEvent] = field(factory=deque, init=False)
    _random: random.Random = field(init=False)
    _error: Exception | None = field(default=None, init=False)
    _running: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.lag.seed if self.lag else None)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.zeros(tuple(shape), dtype=dtype)

    def copy_in(self, host: Tensor, dev: Tensor) -> None:
        self._issue(lambda: _copy(host, dev))

    def run(self, fn: Callable[[], None]) -> None:
        self._issue(fn)

    def copy_out(self, dev: Tensor, host: Tensor) -> None:
        self._issue(lambda: _copy(dev, host))

    def record(self) -> Event:
        event = _CpuEvent(self)
        if self.lag is None:
            event.passed = True
        else:
            self._queue.append(event)
            self.tick()
        return event

    def mark(self) -> Mark:
        mark = _CpuMark()
        self._issue(mark.pass_now)
        return mark

    def synchronize(self) -> None:
        while self._queue:
            self._run_next()

    @property
    def num_waiting(self) -> int:
        """Calls and events that have not been run yet."""
        return len(self._queue)

    def tick(self) -> None:
        """With a seeded lag: run as many waiting calls as the seed says, perhaps none."""
        if self.lag is None or self.lag.seed is None:
            return
        while self._queue and self._random.random() < 0.4:
            self._run_next()

    def run_until(self, event: _CpuEvent) -> None:
        """Run what was issued before ``event``, and no more."""
        while not event.passed:
            self._run_next()

    def _issue(self, call: Callable[[], None]) -> None:
        if self.lag is None or self._running:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    call()
            else:
                call()
        else:
            self._queue.append(call)
            self.tick()

    def _run_next(self) -> None:
        """Run one call, or pass one event. After a raise the rest of that entry is skipped."""
        item = self._queue.popleft()
        if isinstance(item, _CpuEvent):
            item.passed, item.error, self._error = True, self._error, None
        elif self._error is None:
            self._running = True
            try:
                with torch.no_grad():
                    item()
            except Exception as error:  # it belongs to the entry's event
                self._error = error
            finally:
                self._running = False


def _copy(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


def open_device(name: str, lag: Lag | None = None) -> Device:
    """The device called ``cpu``, ``cuda`` or ``cuda:<index>``; ``lag`` is for the CPU alone.

    Raises ConfigError for another name, and for a GPU that is not there.
    """
    if name == "cpu":
        return CpuDevice(lag)
    check_gpu(name)
    from mstar_core.engine.device_cuda import CudaDevice

    return CudaDevice(torch.device(name))
