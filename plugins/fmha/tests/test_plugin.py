"""What the plugin says of itself, what it refuses, and that a resident step reads the tables."""

import inspect
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import fmha_fakes
import numpy as np
import pytest
import torch

from mstar_core.engine.device import CpuDevice
from mstar_core.engine.opening import load_wiring, open_graphs, resolve_config
from mstar_core.engine.warmup import warm_up
from mstar_core.engine.wire import wire
from mstar_core.model.front import Request
from mstar_core.ops.backend import BindRequest
from mstar_core.plugins import discover
from mstar_core.plugins.hardware import Hardware
from mstar_core.step import Bucket
from mstar_core.testing.contracts.backend import assert_answer
from mstar_core.testing.contracts.plugin import PluginContract
from mstar_core.testing.cores import run_all
from mstar_fmha import backend as module
from mstar_fmha.backend import BACKEND

SIZES = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 256, "page_tokens": 64}
SIGNATURES = json.loads((Path(__file__).parent / "signatures.json").read_text())


class TestThePlugin(PluginContract):
    name = "fmha"


def test_it_says_that_nobody_has_run_it_on_a_device():
    (record,) = [record for record in discover() if record.name == "fmha"]
    assert record.as_dict()["not_run_on"] == ["cuda>=10.0"]


@pytest.mark.parametrize(
    ("device", "machine", "library", "code"),
    [
        ("cpu", Hardware(cuda=((10, 0),)), True, "no-hardware"),
        ("cuda", Hardware(cuda=((9, 0),)), True, "no-hardware"),
        ("cuda", Hardware(cuda=((12, 0),)), True, "no-hardware"),
        ("cuda", Hardware(rocm=True), True, "no-hardware"),
        ("cuda", Hardware(cuda=((10, 0),)), None, "no-library"),
        ("cuda", Hardware(cuda=((10, 0),)), True, None),
        ("cuda", Hardware(cuda=((10, 3),)), True, None),
    ],
)
def test_only_two_capabilities_are_taken(device, machine, library, code, monkeypatch):
    """S0.60."""
    monkeypatch.setattr(module, "this_machine", lambda: machine)
    monkeypatch.setattr(module, "find_spec", lambda name: library)
    refusal = BACKEND.available(device)
    assert (refusal and refusal.code) == code
    assert_answer(refusal)
    if code == "no-hardware":
        assert refusal.want == "cuda 10.0 or cuda 10.3"


@pytest.mark.parametrize(
    ("sizes", "dtype", "code"),
    [
        ({}, torch.bfloat16, None),
        ({}, torch.float32, "dtype"),
        ({"head_dim": 96}, torch.float16, "head-dim"),
        ({"page_tokens": 128}, torch.float16, "page-tokens"),
        ({"num_heads": 7}, torch.float16, "heads"),
    ],
)
def test_what_no_kernel_does_is_refused(sizes, dtype, code):
    request = BindRequest(
        operation="paged_attention", device="cuda", dtype=dtype, geometry=SIZES | sizes
    )
    refusal = BACKEND.supports(request)
    assert (refusal and refusal.code) == code
    assert_answer(refusal)


def test_no_bucket_is_refused():
    for kind in ("decode", "prefill", "mixed"):
        assert BACKEND.capture_refusal(Bucket(walk="w", rows=4, tokens=64, kind=kind)) is None


def warmed(backend, graphs):
    sets = (
        "device=cpu",
        "model.dtype=fp32",
        "engine.max_rows=4",
        "engine.token_budget=32",
        f"engine.graphs={graphs}",
        "engine.capture.rows=[4]",
        "engine.capture.tokens=[32]",
        f"nodes.text.backends.paged_attention={backend}",
        "nodes.text.resources.kv.page_tokens=16",
        "nodes.text.resources.state.snapshot_every=16",
    )
    resolved, device = resolve_config("qwen35_tiny", sets), CpuDevice()
    wiring = load_wiring(resolved)
    wiring.backends.add("paged_attention", "fmha", "fmha_fakes:BACKEND")
    wired = wire(resolved, wiring, device.torch_device, target="cpu", offline=True)
    core, report = warm_up(wired, device, open_graphs(graphs, device, wired), lambda *_: None)
    fmha_fakes.CALLS.clear()
    return core, report


def answers(core):
    prompts = ([5, 6, 7], range(40, 70), [9] * 12)
    requests = [
        Request(id=str(i), arrays={"ids": np.array(ids)}, max_new_tokens=5)
        for i, ids in enumerate(prompts)
    ]
    return {name: result.ids for name, result in run_all(core, requests).items()}


def test_resident_decode_reads_the_tables_and_gives_the_tokens_of_the_definition(monkeypatch):
    monkeypatch.setattr(module, "WORKSPACE", 1024)
    want = answers(warmed("torch", "off")[0])
    core, report = warmed("fmha", "recorder")
    assert all(bucket.captured for node in report.nodes for bucket in node.buckets)
    assert [node.resident_walks for node in report.nodes] == [("decode",)]
    assert answers(core) == want
    assert {name for name, _ in fmha_fakes.CALLS} == {"decode", "context"}


@pytest.mark.parametrize("version", SIGNATURES)
def test_a_fake_takes_parameters_of_the_library_and_those_by_place_in_its_order(version):
    for name, recorded in SIGNATURES[version].items():
        fake = inspect.signature(getattr(fmha_fakes, name.partition(":")[2])).parameters
        by_place = [p.name for p in fake.values() if p.default is p.empty]
        assert set(fake) <= set(recorded.split())
        assert recorded.split()[: len(by_place)] == by_place


def test_the_installed_library_is_as_recorded():
    if find_spec("flashinfer") is None:
        pytest.skip("FlashInfer is not installed: its signatures are those on record")
    version = import_module("flashinfer").__version__
    if version not in SIGNATURES:
        pytest.skip(f"FlashInfer {version} is not on record")
    for name, recorded in SIGNATURES[version].items():
        module_name, _, function = name.partition(":")
        real = getattr(import_module(f"flashinfer.{module_name}"), function)
        assert list(inspect.signature(real).parameters) == recorded.split()
