"""Random schedules on a Qwen3.5 whose states decay slowly, against transformers' greedy tokens."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired
from mstar_core.testing.fuzz import fuzz_model
from mstar_core.testing.schedules import Limits

pytestmark = pytest.mark.shared

LIMITS = Limits()
CLOSE = 1e-4
"""Logits: where the best two are nearer, the order of a sum may decide which token it is."""


@pytest.fixture(scope="module")
def greedy(slow):
    """``greedy(prompt)``: what transformers gives, and how close its closest call was."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(slow, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None

    @cache
    def generate(prompt):
        ids = torch.tensor([prompt])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=LIMITS.new,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best, second = torch.stack(out.logits)[:, 0].topk(2).values.T
        return out.sequences[0, len(prompt) :].tolist(), float((best - second).min())

    return generate


@pytest.fixture(scope="module")
def make_request(slow_cases, greedy):
    """Beginnings of golden prompts: another for each neighbour, none with a close call."""
    prompts = [tuple(c["prompt"]) for c in slow_cases if len(c["prompt"]) >= LIMITS.prompt]

    def make(planned):
        at = planned.number % len(prompts)
        begun = [prompt[: planned.prompt] for prompt in (*prompts[at:], *prompts[:at])]
        ids = next(prompt for prompt in begun if greedy(prompt)[1] > CLOSE)
        return Request(
            id=f"r{planned.number}",
            arrays={"ids": np.asarray(ids)},
            max_new_tokens=planned.new,
            gated=planned.gated,
        )

    return make


@pytest.fixture
def fuzz(slow, tmp_path, greedy, make_request):
    """``fuzz(seeds)``: play them; the number of schedules played."""

    def open_core(setup):
        pools = "nodes.text.resources.kv", "nodes.text.resources.state"
        sets = (*setup.sets(pools[0], state=pools[1]), "model.dtype=fp32")
        ref = "mstar_qwen35.model:Qwen35"
        return open_wired(ref, tmp_path, sets, setup.lag, checkpoint=slow)[0]

    def oracle(request):
        return greedy(tuple(request.arrays["ids"].tolist()))[0][: request.max_new_tokens]

    return lambda seeds: fuzz_model(open_core, make_request, oracle, seeds, LIMITS)


def test_ten_random_schedules_give_each_request_its_own_tokens(fuzz):
    assert fuzz(range(10)) == 10


@pytest.mark.long
def test_two_hundred_random_schedules_give_each_request_its_own_tokens(fuzz):
    assert fuzz(range(200)) == 200
