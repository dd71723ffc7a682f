"""What conformance classes share: binding, moving a case to the device, recording, comparing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import attrs
import pytest
import torch
from torch import Tensor

from mstar_core.engine.graphs import GraphBackend
from mstar_core.engine.recorder import Recorder
from mstar_core.fixed import FixedBuffers
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.step import Bucket

T = TypeVar("T")


class OpConformance:
    """Base of the conformance classes. A subclass names what is tested, and where."""

    backend: ClassVar[Backend]
    device: ClassVar[str] = "cpu"
    dtypes: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.bfloat16, torch.float16)

    def graphs(self) -> GraphBackend:
        """How the test captures: the recorder on a CPU. Override it on another device."""
        if self.device != "cpu":
            pytest.skip("no graph backend was given for this device: override graphs()")
        return Recorder(FixedBuffers(torch.device("cpu")))

    def bound(self, dtype: torch.dtype, geometry: Mapping[str, Any]) -> Any:
        """The backend's record for one geometry; skips the test where it is refused."""
        if dtype not in self.dtypes:
            pytest.skip(f"{self.backend.name} is not tested with {dtype}")
        request = BindRequest(
            operation=self.backend.operation, device=self.device, dtype=dtype, geometry=geometry
        )
        refusal = self.backend.available(self.device) or self.backend.supports(request)
        if refusal is not None:
            pytest.skip(str(refusal))
        return self.backend.bind(request)

    def captured(self, ops: T, plan: Any) -> T:
        """``ops`` as a captured step has them; skips the test where the bucket is refused."""
        kind = "decode" if plan.decode else "mixed" if plan.lead_rows else "prefill"
        rows, tokens = len(plan.q_lens_B), len(plan.row_T)
        bucket = Bucket(walk="walk", rows=rows, tokens=tokens, kind=kind, lead=plan.lead_rows)
        refusal = self.backend.capture_refusal(bucket)
        if refusal is not None:
            pytest.skip(str(refusal))
        return attrs.evolve(ops, schedule=None)  # type: ignore[misc]

    def there(self, inputs: T) -> T:
        """``inputs`` with a copy of every tensor on the device under test."""
        return mapped(inputs, lambda x: x.to(self.device, copy=True))

    def recorded(
        self, inputs: T, fn: Callable[[T], Mapping[str, Tensor]]
    ) -> Callable[[T], tuple[Mapping[str, Tensor], T]]:
        """``fn`` captured over the shapes of ``inputs``, with zeros (padding) in every tensor.

        The function that is returned copies other inputs of these shapes in, replays, and gives
        the outputs and the static inputs as the replay left them.
        """
        static = mapped(self.there(inputs), torch.zeros_like)
        graph = self.graphs().capture(self.backend.name, lambda: fn(static), [*tensors_of(static)])

        def replay(other: T) -> tuple[Mapping[str, Tensor], T]:
            for target, source in zip(tensors_of(static), tensors_of(other), strict=True):
                target.copy_(source)
            graph.replay()
            return graph.outputs, static

        return replay


def planned(ops: Any, plan: T) -> T:
    """``plan`` as an eager step has it: the backend has seen it while it was on the host."""
    if ops.schedule is None:
        return plan
    host = mapped(plan, lambda x: x.cpu().numpy())  # type: ignore[arg-type, return-value]
    return attrs.evolve(plan, schedule=ops.schedule(host))  # type: ignore[misc]


def mapped(value: T, change: Callable[[Tensor], Tensor]) -> T:
    """``value`` with ``change`` applied to each tensor in it, through attrs classes."""
    if isinstance(value, Tensor):
        return change(value)  # type: ignore[return-value]
    if not attrs.has(type(value)):
        return value
    fields = {f.name: getattr(value, f.name) for f in attrs.fields(type(value))}  # type: ignore[arg-type]
    return attrs.evolve(value, **{name: mapped(x, change) for name, x in fields.items()})  # type: ignore[misc]


def tensors_of(value: object) -> Iterator[Tensor]:
    """Every tensor in ``value``, through attrs classes, in the order of their fields."""
    if isinstance(value, Tensor):
        yield value
    elif attrs.has(type(value)):
        for f in attrs.fields(type(value)):  # type: ignore[arg-type]
            yield from tensors_of(getattr(value, f.name))


def assert_near(got: Tensor, want: Tensor, tolerance: float) -> None:
    """``got`` is ``want`` within ``tolerance``, absolute and relative, and nowhere NaN."""
    torch.testing.assert_close(got.float().cpu(), want.float(), atol=tolerance, rtol=tolerance)
