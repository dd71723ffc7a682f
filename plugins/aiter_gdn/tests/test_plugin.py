"""What the plugin says of itself, what it refuses, and which bound it keeps."""

import inspect
import json
from pathlib import Path

import aiter_fakes
import pytest
import torch
from attrs import evolve

from mstar_aiter_gdn import backend as module
from mstar_aiter_gdn.backend import BACKEND
from mstar_aiter_gdn.bound import CAPTURED, MAX_TOKENS
from mstar_aiter_gdn.plugin import configure
from mstar_core.config.resolve import resolve
from mstar_core.ops.backend import BindRequest
from mstar_core.plugins import discover
from mstar_core.plugins.hardware import Hardware
from mstar_core.step import Bucket
from mstar_core.testing.contracts.backend import assert_answer
from mstar_core.testing.contracts.plugin import PluginContract

SIZES = {"num_k_heads": 16, "num_v_heads": 32, "k_dim": 128, "v_dim": 128, "conv_taps": 4}
SIGNATURES = json.loads((Path(__file__).parent / "signatures.json").read_text())


class TestThePlugin(PluginContract):
    name = "aiter_gdn"


def test_it_says_that_nobody_has_run_it_on_a_device():
    (record,) = [record for record in discover() if record.name == "aiter_gdn"]
    assert record.as_dict()["not_run_on"] == ["rocm"]


@pytest.mark.parametrize(
    ("device", "machine", "library", "code"),
    [
        ("cpu", Hardware(rocm=True), True, "no-hardware"),
        ("cuda", Hardware(cuda=((9, 0),)), True, "no-hardware"),
        ("cuda", Hardware(rocm=True), None, "no-library"),
        ("cuda", Hardware(rocm=True), True, None),
    ],
)
def test_only_an_amd_gpu_with_the_library_is_taken(device, machine, library, code, monkeypatch):
    monkeypatch.setattr(module, "this_machine", lambda: machine)
    monkeypatch.setattr(module, "find_spec", lambda name: library)
    refusal = BACKEND.available(device)
    assert (refusal and refusal.code) == code
    assert_answer(refusal)


@pytest.mark.parametrize(
    ("sizes", "dtype", "code"),
    [
        ({}, torch.bfloat16, None),
        ({}, torch.float32, "dtype"),
        ({"activation": "gelu"}, torch.bfloat16, "activation"),
        ({"checkpoint_every": 64}, torch.bfloat16, "checkpoints"),
        ({"k_dim": 256}, torch.bfloat16, "head-dim"),
        ({"num_v_heads": 24}, torch.bfloat16, "heads"),
    ],
)
def test_what_no_kernel_does_is_refused(sizes, dtype, code):
    request = BindRequest(
        operation="gated_delta", device="cuda", dtype=dtype, geometry=SIZES | sizes
    )
    refusal = BACKEND.supports(request)
    assert (refusal and refusal.code) == code
    assert_answer(refusal)


@pytest.fixture
def bound():
    yield CAPTURED
    configure(None)


def bucket_of(tokens, kind="prefill"):
    return Bucket(walk="walk", rows=4, tokens=tokens, kind=kind)


def test_a_bucket_whose_rows_may_be_longer_than_the_bound_is_refused(bound):
    """S3.4, S3.11: the longest row that a bucket can hold, from bucket and configuration only."""
    assert BACKEND.capture_refusal(bucket_of(MAX_TOKENS)) is None
    assert BACKEND.capture_refusal(bucket_of(4, "decode")) is None
    assert BACKEND.capture_refusal(evolve(bucket_of(4096), kind="decode")) is None
    for kind in ("prefill", "mixed"):
        refusal = BACKEND.capture_refusal(bucket_of(MAX_TOKENS + 1, kind))
        assert refusal.code == "prompt-too-long"
        assert refusal == BACKEND.capture_refusal(bucket_of(MAX_TOKENS + 1, kind))


@pytest.mark.parametrize(
    ("listed", "tokens"), [("null", 512), ("[64, 256]", 512), ("[64, 2048]", 2048)]
)
def test_token_counts_that_the_configuration_lists_are_taken_at_their_word(
    bound, listed, tokens, tmp_path
):
    file = tmp_path / "engine.yaml"
    file.write_text(
        f"model: {{name: any}}\nengine: {{token_budget: 4096, capture: {{tokens: {listed}}}}}\n"
    )
    configure(resolve(file).config)
    assert bound.tokens == tokens
    assert BACKEND.capture_refusal(bucket_of(tokens)) is None
    assert BACKEND.capture_refusal(bucket_of(tokens + 1)) is not None


@pytest.mark.parametrize("name", [name for name in SIGNATURES if name != "follows"])
def test_a_fake_takes_parameters_of_the_library_in_its_order(name):
    mine = list(inspect.signature(getattr(aiter_fakes, name)).parameters)
    real = SIGNATURES[name].split()
    assert set(mine) <= set(real)
    required = [
        p.name
        for p in inspect.signature(getattr(aiter_fakes, name)).parameters.values()
        if p.default is p.empty and p.kind is not p.KEYWORD_ONLY
    ]
    assert real[: len(required)] == required
