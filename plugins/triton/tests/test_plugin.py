"""What the plugin says of itself."""

import pytest
import torch

from mstar_core.engine.backends import BackendChooser
from mstar_core.ops.backend import BindRequest
from mstar_core.plugins import Wiring, discover
from mstar_core.plugins.load import load_one
from mstar_core.testing.contracts.plugin import PluginContract
from mstar_triton.plugin import BASIS, MODULES

GEOMETRY = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "page_tokens": 16} | {
    "num_k_heads": 2, "num_v_heads": 4, "k_dim": 64, "v_dim": 64, "conv_taps": 4,
}  # fmt: skip


class TestThePlugin(PluginContract):
    name = "triton"


@pytest.fixture
def wiring():
    found = Wiring.of_core()
    (record,) = [record for record in discover() if record.name == "triton"]
    load_one(record, found, None)
    return found


@pytest.mark.parametrize("operation", MODULES)
def test_a_cpu_is_refused_with_a_sentence(wiring, operation):
    backend = wiring.backends.resolve(operation, "triton")
    refusal = backend.available("cpu")
    assert refusal.code == "no-hardware"
    assert refusal.owner == "mstar-triton"
    assert backend.available("cuda") is None


@pytest.mark.parametrize("operation", MODULES)
def test_the_reason_why_it_comes_first_is_told(wiring, operation):
    chooser = BackendChooser(wiring=wiring, device="cuda", dtype=torch.bfloat16, settings={})
    chooser.bind("node", operation, GEOMETRY)
    (choice,) = chooser.choices.values()
    assert choice.rank == f"priority 50, {BASIS.get(operation, 'not measured')}"
    assert [other.partition(" ")[0] for other in choice.behind] == ["torch"]


@pytest.mark.parametrize("operation", MODULES)
def test_other_dtypes_are_refused(wiring, operation):
    backend = wiring.backends.resolve(operation, "triton")
    request = BindRequest(
        operation=operation, device="cuda", dtype=torch.float64, geometry=GEOMETRY
    )
    assert backend.supports(request).code == "dtype"


@pytest.mark.parametrize(("device", "chosen"), [("cuda", "triton"), ("cpu", "torch")])
@pytest.mark.parametrize("operation", MODULES)
def test_a_gpu_takes_it_by_itself_and_a_cpu_the_torch_backend(wiring, operation, device, chosen):
    chooser = BackendChooser(wiring=wiring, device=device, dtype=torch.bfloat16, settings={})
    chooser.bind("node", operation, GEOMETRY)
    assert set(chooser.bound["node"]) == {f"{operation}.{chosen}"}
