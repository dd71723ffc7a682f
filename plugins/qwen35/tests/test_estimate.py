"""What ``check`` says a start will take is what it takes."""

from __future__ import annotations

import pytest
import torch

from mstar_core.engine import memory
from mstar_core.engine.dry_run import dry_run
from mstar_core.engine.opening import load_wiring, open_core, resolve_config
from mstar_core.engine.wire import wire

SMALL = ("device=cpu", "engine.max_rows=4", "engine.token_budget=64", "engine.kv_memory=64MiB")


@pytest.mark.parametrize("graphs", ["off", "recorder"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_estimate_is_what_a_start_allocates(graphs, dtype):
    sets = (*SMALL, f"engine.graphs={graphs}", f"model.dtype={dtype}")
    estimate = dry_run(resolve_config("qwen35_tiny", sets), offline=True)
    _, wired, report = open_core("qwen35_tiny", sets, offline=True)
    inside = report.memory.pop("graphs text", 0)
    assert (inside > 0) is (graphs == "recorder")
    assert estimate.counts_graphs is not (graphs == "recorder")
    says = any("what graphs keep inside" in line for line in estimate.lines())
    assert says is (graphs == "recorder")
    assert not any("what graphs keep inside" in line for line in report.lines())
    assert estimate.memory == report.memory
    claimed = sum(wired.buffers.bytes_by_owner().values())
    weights = sum(size for owner, size in report.memory.items() if owner.startswith("weights"))
    assert sum(report.memory.values()) == claimed + weights
    assert weights == sum(p.nbytes for n in wired.nodes.values() for p in _tensors(n.submodule))


def _tensors(module):
    return {id(t): t for t in [*module.parameters(), *module.buffers()]}.values()


def test_a_dry_run_names_the_buckets_that_a_start_captures():
    sets = (*SMALL, "engine.graphs=recorder")
    estimate = dry_run(resolve_config("qwen35_tiny", sets), offline=True)
    _, _, report = open_core("qwen35_tiny", sets, offline=True)
    want = {b.bucket for node in report.nodes for b in node.buckets if b.captured}
    assert {b.bucket for node in estimate.nodes for b in node.buckets if b.captured} == want
    assert want


@pytest.mark.parametrize("free", [6 << 20, 1 << 40])
def test_on_a_gpu_pages_get_what_weights_and_states_leave(monkeypatch, free):
    """On the meta device, as ``check`` on a machine with a GPU wires it."""
    monkeypatch.setattr(memory, "free_device_bytes", lambda device: free)
    resolved = resolve_config("qwen35_tiny", ("engine.max_rows=16",))
    wired = wire(resolved, load_wiring(resolved), torch.device("meta"), target="cuda")
    sizes = memory.bytes_by_owner(
        {name: node.submodule for name, node in wired.nodes.items()}, wired.buffers
    )
    pages = sizes.pop("text.kv")
    assert sizes["text.state"] > 0
    left = free - sum(sizes.values())
    one_page = pages // wired.nodes["text"].resources["kv"].pool.num_pages
    if free == 1 << 40:
        assert pages == (16 * 1024 // 64 + 1) * one_page
    else:
        assert left * 0.9 - one_page < pages <= left * 0.9
