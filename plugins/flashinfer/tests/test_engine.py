"""A whole engine over the fakes: what is captured, what is planned, and the same tokens."""

import flashinfer_fakes as fakes
import numpy as np
import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.opening import load_wiring, open_graphs, resolve_config
from mstar_core.engine.warmup import warm_up
from mstar_core.engine.wire import wire
from mstar_core.model.front import Request
from mstar_core.testing.cores import run_all
from mstar_flashinfer.attention import paged

OFFERS = {
    "paged_attention": "FA2",
    "gated_delta": "DELTA",
    "sampling": "FILTERED",
}


@pytest.fixture(autouse=True)
def _small_workspaces(monkeypatch):
    monkeypatch.setattr(paged, "WORKSPACE", 1024)


def warmed(backend, *sets, lag=None):
    """The tiny model with three operations by ``backend``: its warmed core, and the report."""
    chosen = (
        "device=cpu",
        "model.dtype=fp32",
        "engine.max_rows=4",
        "engine.token_budget=32",
        "engine.capture.rows=[4]",
        "engine.capture.tokens=[32]",
        "nodes.text.resources.kv.page_tokens=16",
        "nodes.text.resources.state.snapshot_every=16",
        *(f"nodes.text.backends.{operation}={backend}" for operation in OFFERS),
        *sets,
    )
    resolved, device = resolve_config("qwen35_tiny", chosen), CpuDevice(lag)
    wiring = load_wiring(resolved)
    for operation, name in OFFERS.items():
        wiring.backends.add(operation, "flashinfer", f"flashinfer_fakes:{name}")
    wired = wire(resolved, wiring, device.torch_device, target="cpu", offline=True)
    graphs = open_graphs(resolved.config.engine.graphs, device, wired)
    core, report = warm_up(wired, device, graphs, lambda *_: None)
    fakes.PLANS.clear()
    return core, report


def answers(core):
    prompts = ([5, 6, 7], range(40, 70), [9] * 12, range(3, 50))
    warm = SamplingSettings(temperature=0.8, top_k=20, top_p=0.9, seed=11)
    requests = [
        Request(
            id=str(i),
            arrays={"ids": np.array(ids)},
            max_new_tokens=6,
            sampling=warm if i % 2 else SamplingSettings(),
        )
        for i, ids in enumerate(prompts)
    ]
    return {name: result.ids for name, result in run_all(core, requests).items()}


@pytest.fixture(scope="module")
def want():
    """What the definitions answer, eagerly."""
    return answers(warmed("torch", "engine.graphs=off")[0])


def test_decode_is_captured_without_a_plan_and_prompts_are_planned(want):
    core, report = warmed("flashinfer", "engine.graphs=recorder")
    (node,) = report.nodes
    captured = {bucket.bucket.split()[0] for bucket in node.buckets if bucket.captured}
    dropped = {bucket.bucket.split()[0]: bucket for bucket in node.buckets if not bucket.captured}
    assert captured == {"decode"}
    assert node.resident_walks == ("decode",)
    assert set(dropped) == {"prefill"}
    assert dropped["prefill"].refusals[0].code == "planned-on-the-host"
    assert answers(core) == want
    assert {name for name, _, _ in fakes.PLANS} == {"FakePrefill", "xqa"}


@pytest.mark.parametrize("sets", [(), ("engine.mixed=on",), ("engine.in_flight=3",)], ids=str)
def test_eager_steps_are_planned_however_many_are_in_flight(want, sets):
    """A step that waits on the device finds the lengths that it was planned with."""
    lag = Lag(3) if "engine.in_flight=3" in sets else None
    core, _ = warmed("flashinfer", "engine.graphs=off", *sets, lag=lag)
    assert answers(core) == want
    kinds = {name for name, _, _ in fakes.PLANS}
    assert kinds == {"FakePrefill", "FakeDecode"}
