"""What the plugin says of itself, and what it refuses."""

import pytest
import torch
from attrs import evolve

from mstar_core.engine.backends import BackendChooser
from mstar_core.ops.backend import BindRequest
from mstar_core.plugins import Wiring, discover
from mstar_core.plugins.hardware import Hardware
from mstar_core.plugins.load import load_one
from mstar_core.step import Bucket
from mstar_core.testing.contracts.backend import assert_answer
from mstar_core.testing.contracts.plugin import PluginContract
from mstar_flashinfer import backend as shared
from mstar_flashinfer.attention.paged import FA2, FA3
from mstar_flashinfer.gated_delta import BACKEND as GATED_DELTA
from mstar_flashinfer.plugin import OFFERS
from mstar_flashinfer.sampling import BACKEND as SAMPLING

HEADS = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 256, "page_tokens": 64}
DELTA = {"num_k_heads": 16, "num_v_heads": 16, "k_dim": 128, "v_dim": 128, "conv_taps": 4}
SIZES = HEADS | DELTA | {"vocab_size": 100}


class TestThePlugin(PluginContract):
    name = "flashinfer"


@pytest.fixture
def wiring():
    found = Wiring.of_core()
    (record,) = [record for record in discover() if record.name == "flashinfer"]
    load_one(record, found, None)
    return found


def asked(operation, dtype=torch.bfloat16, **sizes):
    return BindRequest(operation=operation, device="cuda", dtype=dtype, geometry=SIZES | sizes)


@pytest.mark.parametrize("backend", [FA2, FA3, GATED_DELTA, SAMPLING], ids=lambda b: b.operation)
@pytest.mark.parametrize(
    ("device", "machine"),
    [
        ("cpu", Hardware(cuda=((9, 0),))),
        ("cuda", Hardware()),
        ("cuda", Hardware(cuda=((8, 0),))),
        ("cuda", Hardware(rocm=True)),
    ],
)
def test_only_nvidia_from_hopper_on_is_taken(backend, device, machine, monkeypatch):
    monkeypatch.setattr(shared, "this_machine", lambda: machine)
    refusal = backend.available(device)
    assert (refusal.code, refusal.owner) == ("no-hardware", "mstar-flashinfer")
    assert_answer(refusal)


def test_a_missing_library_is_a_refusal_that_names_the_module(monkeypatch):
    monkeypatch.setattr(shared, "this_machine", lambda: Hardware(cuda=((9, 0),)))
    for there, missing in ((set(), "flashinfer"), ({"flashinfer"}, "cutlass")):
        monkeypatch.setattr(shared, "find_spec", lambda m, there=there: m in there or None)
        refusal = GATED_DELTA.available("cuda")
        assert (refusal.code, refusal.got) == ("no-library", f"no module {missing}")
    monkeypatch.setattr(shared, "find_spec", lambda m: True)
    assert GATED_DELTA.available("cuda") is None


@pytest.mark.parametrize(
    ("backend", "sizes", "code"),
    [
        (FA2, {}, None),
        (FA2, {"head_dim": 96}, "head-dim"),
        (FA3, {"page_tokens": 8}, "page-tokens"),
        (FA3, {"page_tokens": 256}, "page-tokens"),
        (FA2, {"num_heads": 6}, "heads"),
        (GATED_DELTA, {}, None),
        (GATED_DELTA, {"activation": "gelu"}, "activation"),
        (GATED_DELTA, {"checkpoint_every": 64}, "checkpoints"),
        (GATED_DELTA, {"k_dim": 64}, "head-dim"),
        (GATED_DELTA, {"num_v_heads": 24}, "heads"),
        (SAMPLING, {}, None),
    ],
)
def test_sizes_without_a_kernel_are_refused(backend, sizes, code):
    refusal = backend.supports(asked(backend.operation, **sizes))
    assert (refusal and refusal.code) == code
    assert_answer(refusal)
    assert backend.supports(asked(backend.operation, torch.float32)).code == "dtype"


@pytest.mark.parametrize("backend", [FA2, FA3], ids=lambda b: b.name)
def test_only_decode_buckets_of_attention_are_captured(backend):
    for kind, tokens in (("decode", 4), ("prefill", 64), ("mixed", 64)):
        bucket = Bucket(walk="walk", rows=4, tokens=tokens, kind=kind)
        refusal = backend.capture_refusal(bucket)
        assert (refusal and refusal.code) == (None if kind == "decode" else "planned-on-the-host")
    assert "host" in refusal.got
    assert GATED_DELTA.capture_refusal(evolve(bucket, kind="prefill")) is None


def test_auto_asks_for_kernels_without_a_plan_first(wiring):
    candidates = [offer.name for offer in wiring.backends.candidates("paged_attention")]
    assert candidates == ["flashinfer", "flashinfer_fa3", "torch"]
    priorities = {offer.priority for offer in wiring.backends.candidates("sampling")}
    assert priorities == {40, 0}


@pytest.mark.parametrize(("operation", "name"), OFFERS)
def test_a_cpu_gets_the_torch_backend_and_the_reason(wiring, operation, name):
    chooser = BackendChooser(wiring=wiring, device="cpu", dtype=torch.bfloat16, settings={})
    chooser.bind("node", operation, SIZES)
    choice = chooser.choices["node", operation, "torch"]
    assert {r.where.split()[-1] for r in choice.passed_over} >= {name}
