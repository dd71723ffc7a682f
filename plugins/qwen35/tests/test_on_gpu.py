"""The model on a GPU, by the kernels it would serve with, beside its goldens and itself.

In bf16 two ways of running may choose differently where the fp32 model hardly prefers one token
to another. Each first difference of two runs is looked up there: it is accounted for where the fp32
reference's two likeliest tokens lie closer than four times the largest difference between bf16's
log probabilities and fp32's that was measured on the same text, and both choices as close to the
best. The places are counted and printed.

A run of these tests without their goldens would show nothing, so it fails.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from attrs import frozen

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.errors import ConfigError
from mstar_core.model.front import Request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
ROOT = Path(__file__).parents[3]
PLACES = (ROOT.parent / "shared" / "models", ROOT / ".shared")
"""Where goldens are looked for; the second is a copy for a machine without the first."""
NAMES = ("tiny-untied-8l-slow", "tiny-tied", "tiny-untied-8l", "tiny-realheads")
CLOSE = 4
"""A margin below so many measured errors is a tie."""
BASE = (
    "device=cuda",
    "engine.max_rows=8",
    "engine.token_budget=256",
    "engine.max_context=512",
    "engine.capture.rows=[1,8]",
    "engine.capture.tokens=[256]",
    "engine.prefix_cache=off",
    "engine.in_flight=2",
)
WAYS = {
    "captured, resident": ("engine.capture.require=true",),
    "captured, planned on the host": ("engine.capture.require=true", "engine.resident=off"),
    "eager": ("engine.graphs=off",),
}


@frozen
class Golden:
    """A tiny checkpoint, prompts, and the greedy tokens that transformers makes of them."""

    folder: Path
    prompts: list[list[int]]
    greedy: list[list[int]]


@pytest.fixture(scope="module", params=NAMES)
def golden(request):
    for place in PLACES:
        folder = place / "golden" / f"qwen3_5-{request.param}"
        if folder.is_dir():
            told = json.loads((folder / "golden.json").read_text())
            cases = told.get("cases") or [told] if isinstance(told, dict) else told
            prompts = [case["prompt"] for case in cases]
            return Golden(folder, prompts, [case["greedy"] for case in cases])
    pytest.fail(f"no golden of {request.param} in any of {', '.join(map(str, PLACES))}")


def ask(prompt, steps, logprobs=None):
    return Request(
        arrays={"ids": np.asarray(prompt, np.int64)},
        max_new_tokens=steps,
        ignore_stop_ids=True,
        sampling=SamplingSettings(logprobs=logprobs),
    )


def open_engine(golden, *sets):
    return Engine.open("qwen35_tiny", (f"model.path={golden.folder}", *BASE, *sets))


def tokens(golden, *sets, alone=False):
    """Greedy tokens and log probabilities of every prompt, together or one after the other."""
    asked = [ask(p, len(g)) for p, g in zip(golden.prompts, golden.greedy, strict=True)]
    with open_engine(golden, *sets) as engine:
        batches = [[one] for one in asked] if alone else [asked]
        found = [result for batch in batches for result in engine.run(batch)]
    assert [result.error for result in found] == [None] * len(asked)
    return [result.ids for result in found], [result.logprobs for result in found]


class Reference:
    """The fp32 model, eager, and how far bf16 is from it."""

    def __init__(self, golden):
        eager = ("engine.graphs=off", "engine.in_flight=0")
        self.engine = open_engine(golden, "model.dtype=fp32", *eager)
        self.golden, self.places = golden, []
        with open_engine(golden, "model.dtype=bf16", *eager) as engine:
            self.error = max(map(self._distance, *map(self._told, (self.engine, engine))))

    def _told(self, engine):
        """The likeliest tokens at every step."""
        pairs = zip(self.golden.prompts, self.golden.greedy, strict=True)
        return engine.run([ask(p, len(g), 20) for p, g in pairs])

    @staticmethod
    def _distance(one, other):
        """The largest difference of a log probability, as far as both tell of the same text."""
        worst = 0.0
        for mine, theirs, top, beside in zip(one.ids, other.ids, one.top, other.top, strict=True):
            known = dict(beside)
            shared = [abs(value - known[id]) for id, value in top if id in known]
            worst = max([worst, *shared])
            if mine != theirs:
                break
        return worst

    def account(self, what, first, second):
        """Every first difference between two runs; the test fails for one that is no tie."""
        for prompt, one, other in zip(self.golden.prompts, first, second, strict=True):
            pairs = enumerate(zip(one, other, strict=True))
            at = next((i for i, (a, b) in pairs if a != b), None)
            if at is not None:
                self._look_up(what, prompt + one[:at], {one[at], other[at]})

    def _look_up(self, what, text, chosen):
        (found,) = self.engine.run([ask(text, 1, 20)])
        top, bound = found.top[0], CLOSE * self.error
        margin = top[0][1] - top[1][1]
        self.places.append((what, len(text), margin))
        assert margin < bound, f"{what}: {margin}, error {self.error}"
        near = {id for id, value in top if top[0][1] - value < bound}
        assert chosen <= near, f"{what}: {chosen}, fp32 has {top}"

    def close(self):
        name = self.golden.folder.name
        print(f"\n{name}: bf16's largest error {self.error:.4f}, {len(self.places)} places")
        for what, length, margin in self.places:
            print(f"  {what}: behind {length} tokens, margin {margin:.4f}")
        self.engine.close()


@pytest.fixture(scope="module")
def reference(golden):
    made = Reference(golden)
    yield made
    made.close()


@pytest.mark.parametrize("way", WAYS)
def test_fp32_makes_every_token_of_the_golden(golden, way):
    together, _ = tokens(golden, "model.dtype=fp32", *WAYS[way])
    assert together == golden.greedy


def test_bf16_differs_from_the_golden_and_from_itself_at_ties_alone(golden, reference):
    """Resident and not, captured and eager, alone and together."""
    found = {way: tokens(golden, "model.dtype=bf16", *sets)[0] for way, sets in WAYS.items()}
    first = next(iter(WAYS))
    found["alone"] = tokens(golden, "model.dtype=bf16", *WAYS[first], alone=True)[0]
    reference.account("golden", golden.greedy, found[first])
    for way, other in found.items():
        if way != first:
            reference.account(f"{first} against {way}", found[first], other)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_three_runs_are_equal_to_the_bit(golden, dtype):
    runs = [tokens(golden, f"model.dtype={dtype}") for _ in range(3)]
    bits = [np.concatenate([np.asarray(p, np.float64) for p in logprobs]) for _, logprobs in runs]
    assert runs[0][0] == runs[1][0] == runs[2][0]
    assert bits[0].tobytes() == bits[1].tobytes() == bits[2].tobytes()


WIDE = {
    "hidden_size": 1024, "num_hidden_layers": 4, "intermediate_size": 64, "vocab_size": 1000,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"], "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True, "max_position_embeddings": 4096, "dtype": "bfloat16",
    "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25,
                        "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    "hidden_act": "silu", "attn_output_gate": True, "mamba_ssm_dtype": "float32",
    "model_type": "qwen3_5_text",
}  # fmt: skip
"""Small but for its states, 3 MiB a request, and its keys, 2 KiB a token."""


@pytest.fixture
def crowded(tmp_path, request):
    """A configuration of :data:`WIDE`, on a card of which so many MiB are left, else 512."""
    left = getattr(request, "param", 512)
    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    file = tmp_path / "wide.yaml"
    file.write_text(f"model: {{name: qwen35, path: {tmp_path}, load: random}}\ndevice: cuda\n")
    torch.cuda.empty_cache()  # noqa: TID251
    free, _ = torch.cuda.mem_get_info()  # noqa: TID251
    tenant = torch.empty(free - (left << 20), dtype=torch.uint8, device="cuda")
    yield file
    del tenant
    torch.cuda.empty_cache()  # noqa: TID251


@pytest.mark.parametrize(
    ("sets", "pool", "setting"),
    [
        (("engine.kv_memory=2GiB", "engine.max_rows=512"), "text.kv", "engine.kv_memory"),
        (("engine.kv_memory=16MiB", "engine.max_rows=512"), "text.state", "engine.max_rows"),
        (("engine.kv_memory=16MiB", "engine.max_rows=96"), "prefixes", "engine.prefix_cache"),
    ],
    ids=["pages", "states", "snapshots"],
)
def test_a_start_without_memory_names_the_pool_and_its_setting(crowded, sets, pool, setting):
    with pytest.raises(ConfigError) as caught:
        Engine.open(crowded, sets)
    assert pool in caught.value.where
    assert setting in caught.value.fix
    assert "out of memory" in str(caught.value.got)


@pytest.mark.parametrize("crowded", [8192], indirect=True)
def test_pages_take_what_weights_and_states_leave_free(crowded):
    """1,024 streams of 4,096 tokens would take 8 GiB of pages, and their states take 3."""
    sets = ("engine.max_rows=1024", "engine.prefix_cache=off", "engine.capture.rows=[8]")
    with Engine.open(crowded, sets) as engine:
        (found,) = engine.run([ask([1, 2, 3], 4)])
        pages = engine.report.memory["text.kv"]
    assert len(found.ids) == 4
    assert 3 << 30 < pages < 5 << 30
