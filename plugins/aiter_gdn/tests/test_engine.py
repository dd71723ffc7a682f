"""A whole engine over the fakes: which kernel runs when, what is captured, and which memory."""

import math

import aiter_fakes
import numpy as np
import pytest

from mstar_aiter_gdn.bound import CAPTURED
from mstar_aiter_gdn.rule import DeltaRule
from mstar_core.engine.device import CpuDevice
from mstar_core.engine.opening import load_wiring, open_graphs, resolve_config
from mstar_core.engine.warmup import warm_up
from mstar_core.engine.wire import wire
from mstar_core.model.front import Request
from mstar_core.testing.cores import run_all

SETS = (
    "device=cpu",
    "model.dtype=fp32",
    "engine.max_rows=4",
    "engine.token_budget=64",
    "engine.graphs=recorder",
    "engine.capture.rows=[4]",
    "engine.capture.tokens=[16, 64]",
    "nodes.text.resources.kv.page_tokens=16",
    "nodes.text.resources.state.snapshot_every=16",
)


def warmed(backend, *sets):
    """What the tiny model is built from, its warmed core, and the report."""
    chosen = (*SETS, f"nodes.text.backends.gated_delta={backend}", *sets)
    resolved = resolve_config("qwen35_tiny", chosen)
    wiring, device = load_wiring(resolved), CpuDevice()
    wiring.backends.add("gated_delta", "aiter", "aiter_fakes:BACKEND")
    wired = wire(resolved, wiring, device.torch_device, target="cpu", offline=True)
    graphs = open_graphs(resolved.config.engine.graphs, device, wired)
    core, report = warm_up(wired, device, graphs, lambda *_: None)
    aiter_fakes.CALLS.clear()
    return wired, core, report


@pytest.fixture
def opened(monkeypatch):
    """:func:`warmed`, with a tiling of FlyDSL for the tiny heads."""
    monkeypatch.setattr(DeltaRule, "tiles", lambda self, D, E: True)
    yield warmed
    CAPTURED.read(None)


def requests():
    prompts = ([5, 6, 7], range(40, 70), [9] * 12, range(3, 50))
    return [
        Request(id=str(i), arrays={"ids": np.array(ids)}, max_new_tokens=6)
        for i, ids in enumerate(prompts)
    ]


def answers(core):
    return {name: result.ids for name, result in run_all(core, requests()).items()}


@pytest.fixture(scope="module")
def want():
    """What the definition answers, eagerly."""
    wired, core, _ = warmed("torch", "engine.graphs=off")
    assert wired.nodes
    found = answers(core)
    assert all(len(ids) == 6 for ids in found.values())
    return found


def test_captured_steps_go_token_by_token_and_decode_by_flydsl(opened, want):
    """S3.4, S3.5, S3.25: the tokens are those of the definition."""
    _, core, report = opened("aiter")
    assert all(bucket.captured for node in report.nodes for bucket in node.buckets)
    assert answers(core) == want
    assert set(aiter_fakes.CALLS) == {"sequential", "flydsl"}


def test_a_refused_bucket_runs_eagerly_by_chunks_scheduled_once_a_step(opened, want, monkeypatch):
    """S3.3, S3.7, S3.9: one reason in the report, and the same tokens."""
    monkeypatch.setattr(CAPTURED, "tokens", 16)
    wired, core, report = opened("aiter")
    buckets = [bucket for node in report.nodes for bucket in node.buckets]
    dropped = [bucket for bucket in buckets if not bucket.captured]
    assert {bucket.bucket.removesuffix(" v1") for bucket in dropped} == {"prefill 5x64"}
    assert all("at most 16" in str(bucket.refusals[0]) for bucket in dropped)
    assert answers(core) == want
    steps, layers = (aiter_fakes.CALLS.count(name) for name in ("schedule", "chunks"))
    assert steps
    assert layers == steps * wired.nodes["text"].resources["state"].options.num_layers


def test_mixed_steps_decode_by_flydsl_beside_the_prompt_kernel(opened, want):
    """S3.14."""
    _, core, _ = opened("aiter", "engine.mixed=on")
    assert answers(core) == want
    assert {"sequential", "flydsl"} <= set(aiter_fakes.CALLS)


def test_prefixes_are_not_reused_and_snapshots_take_no_memory(opened):
    """S3.15, S3.16: refused before anything is captured, with the reason in the report."""
    found = {}
    for backend in ("torch", "aiter"):
        wired, _, report = opened(backend, "engine.graphs=off")
        claimed = wired.buffers.of("text.state")
        kept = [b.numel() * b.element_size() for n, b in claimed.items() if "snapshots" in n]
        found[backend] = (report.prefix_interval, sum(kept))
        codes = [refusal.code for refusal in report.prefix_refusals]
        assert codes == ([] if backend == "torch" else ["no-snapshots"])
    blocks = wired.nodes["text"].resources["state"].pool.blocks.values()
    one = sum(block[:, 0].numel() * block.element_size() for block in blocks)
    assert found == {"torch": (16, (4 + 1) * one), "aiter": (None, 0)}


@pytest.mark.parametrize(
    ("layers", "heads", "channels", "mib"),
    [(18, 16, 6144, 2385), (24, 32, 8192, 6288)],
    ids=["0.8B", "9B"],
)
def test_what_128_snapshots_would_take_at_published_sizes(layers, heads, channels, mib):
    """What is given back: fp32 states of 128 by 128, windows of three bf16 inputs."""
    states, windows = heads * 128 * 128 * 4, channels * 3 * 2
    assert math.floor(128 * layers * (states + windows) / 2**20) == mib
