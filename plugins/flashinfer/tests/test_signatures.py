"""Fakes take what the library takes: as recorded of two versions, and as it is installed."""

import inspect
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import flashinfer_fakes as fakes
import pytest

RECORDED = json.loads((Path(__file__).parent / "signatures.json").read_text())
WRAPPERS = {
    "decode:BatchDecodeWithPagedKVCacheWrapper": fakes.FakeDecode,
    "prefill:BatchPrefillWithPagedKVCacheWrapper": fakes.FakePrefill,
}
FAKES = {
    f"{name}.{method}": getattr(wrapper, method)
    for name, wrapper in WRAPPERS.items()
    for method in ("__init__", "plan", "run")
} | {
    "decode:xqa_batch_decode_with_kv_cache": fakes.fake_xqa,
    "gdn_prefill:chunk_gated_delta_rule": fakes.fake_chunk,
    "sampling:top_k_renorm_probs": fakes.fake_top_k,
    "sampling:top_p_renorm_probs": fakes.fake_top_p,
}
DECODE = "gdn_decode:gated_delta_rule_decode_pretranspose"
FAKE_DECODES = {"0.6.6": fakes.fake_decode_packed, "0.7.4": fakes.fake_decode_pool}


def names(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def required(function):
    """What the plugin passes by place."""
    found = inspect.signature(function).parameters.values()
    return [p.name for p in found if p.default is p.empty and p.name != "self"]


@pytest.mark.parametrize("version", RECORDED)
def test_a_fake_takes_parameters_of_the_library_and_those_by_place_in_its_order(version):
    for name, fake in {**FAKES, DECODE: FAKE_DECODES[version]}.items():
        real = RECORDED[version][name].split()
        mine = [n for n in names(fake) if n in real or "**kwargs" not in real]
        assert set(mine) <= set(real), name
        assert real[: len(required(fake))] == required(fake), name


@pytest.mark.parametrize(("version", "pooled"), [("0.6.6", False), ("0.7.4", True)])
def test_a_pool_of_states_is_known_by_the_signature(version, pooled):
    library = fakes.PACKED if version == "0.6.6" else fakes.POOLED
    assert library.takes_pool == pooled
    assert ("output_state_indices" in RECORDED[version][DECODE].split()) == pooled


def test_the_installed_library_is_as_recorded():
    if find_spec("flashinfer") is None:
        pytest.skip("FlashInfer is not installed: its signatures are those on record")
    version = import_module("flashinfer").__version__
    if version not in RECORDED:
        pytest.skip(f"FlashInfer {version} is not on record")
    for name, recorded in RECORDED[version].items():
        module, _, path = name.partition(":")
        if module == "gdn_decode" and find_spec("cutlass") is None:
            continue
        found = import_module(f"flashinfer.{module}")
        for part in path.split("."):
            found = getattr(found, part)
        stars = {"*args", "**kwargs", "*deprecated_positional_args"}
        assert names(found) == [n.lstrip("*") if n in stars else n for n in recorded.split()], name
