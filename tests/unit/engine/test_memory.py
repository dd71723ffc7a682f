"""Memory: how much pools may take, and what everything takes."""

import pytest
import torch
from torch import nn

from mstar_core.engine import memory
from mstar_core.engine.memory import bytes_by_owner, memory_for, pool_budget, share, weight_bytes
from mstar_core.errors import ConfigError
from mstar_core.fixed import FixedBuffers


def never():
    raise AssertionError("nobody needs to know")


def test_a_configured_budget_is_taken_as_it_is():
    assert pool_budget(1000, torch.device("cuda"), never) == (1000, "engine.kv_memory")


def test_a_cpu_gives_a_quarter_of_what_is_free():
    budget, detail = pool_budget(None, torch.device("cpu"), never)
    assert budget > 1 << 20
    assert detail == "a quarter of free memory"


def test_a_gpu_gives_nine_tenths_of_what_the_others_leave(monkeypatch):
    monkeypatch.setattr(memory, "free_device_bytes", lambda device: 1000)
    gpu = torch.device("cuda")
    assert pool_budget(None, gpu, lambda: 400)[0] == 540
    assert pool_budget(None, gpu, lambda: 4000)[0] == 0


def test_no_memory_for_a_pool_names_it_and_its_settings():
    words = "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has 4 GiB free. And more."
    with pytest.raises(ConfigError) as caught, memory_for("the pools of text.kv", ("a.b", "c")):
        raise torch.OutOfMemoryError(words)
    assert caught.value.where == "the pools of text.kv"
    assert "CUDA out of memory" in str(caught.value.got)
    assert caught.value.fix == "lower a.b or c, or free the device for it"
    with pytest.raises(RuntimeError, match="another"), memory_for("x", ()):
        raise RuntimeError("another")


def test_pools_that_fit_together_get_all_that_they_can_use():
    assert share({"a": 60, "b": 40}, 100) == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("demands", "budget"),
    [({"a": 60, "b": 40}, 50), ({"a": 1, "b": 999}, 100), ({"a": 1 << 60, "b": 1 << 60}, 1 << 40)],
)
def test_pools_that_do_not_fit_share_in_proportion_and_within_the_budget(demands, budget):
    given = share(demands, budget)
    assert sum(given.values()) <= budget
    assert given == {k: budget * n // sum(demands.values()) for k, n in demands.items()}


def test_no_pools_share_nothing():
    assert share({}, 0) == {}


def test_a_tensor_that_two_modules_share_counts_once():
    one, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    other.weight = one.weight
    one.register_buffer("table", torch.zeros(8, dtype=torch.int64))
    assert weight_bytes({"one": one, "other": other}) == {"one": 64 + 64, "other": 0}


def test_everything_is_listed_by_owner():
    buffers = FixedBuffers(torch.device("cpu"))
    buffers.claim("n.kv", "k", (2, 3), torch.float32)
    buffers.claim("n.kv", "v", (2, 3), torch.float32)
    buffers.claim("staging", "eager", (10,), torch.uint8)
    found = bytes_by_owner({"n": nn.Linear(2, 2, bias=False)}, buffers)
    assert found == {"weights n": 16, "n.kv": 48, "staging": 10}
