"""The forward against transformers: every layer, prompts whole and cut, rows alone and together."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch

GOLDEN = ["tiny-tied", "tiny-untied-8l", "tiny-realheads"]


def layer_outputs(layers):
    """A list that collects what each of ``layers`` returns, and the hooks to remove."""
    seen = []

    def keep(module, given, out):
        seen.append(out[0] if isinstance(out, tuple) else out)

    return seen, [layer.register_forward_hook(keep) for layer in layers]


@pytest.fixture(scope="module")
def reference_model():
    """``reference_model(folder)``: transformers' model, fp32, loaded once."""
    from transformers import AutoModelForCausalLM

    @cache
    def load(folder):
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    return load


@pytest.fixture(scope="module")
def reference(reference_model):
    """``reference(folder, ids)``: transformers' layer outputs and last logits."""

    def run(folder, ids):
        model = reference_model(folder)
        layers = next(m for n, m in model.named_modules() if n.endswith("model.layers"))
        seen, hooks = layer_outputs(layers)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        for hook in hooks:
            hook.remove()
        return [one.view(len(ids), -1) for one in seen], logits

    return run


def check_layers(built, ids, reference_outputs):
    want, logits = reference_outputs
    seen, hooks = layer_outputs(built.submodule.layers)
    got = built.step("prefill", [(built.open(ids), ids)])
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(seen, want, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(got["logits"][0], logits, atol=5e-4, rtol=0)


def test_every_layer_of_the_shipped_checkpoint_is_transformers(tiny, node, reference):
    """QW-01, QW-03"""
    ids = torch.randint(0, 1000, (70,), generator=torch.Generator().manual_seed(3)).tolist()
    check_layers(node(tiny), ids, reference(tiny, ids))


@pytest.mark.shared
@pytest.mark.parametrize("name", GOLDEN)
def test_every_layer_of_the_golden_checkpoints_is_transformers(shared, node, reference, name):
    """QW-01, QW-02, QW-03"""
    folder = shared / "golden" / f"qwen3_5-{name}"
    ids = json.loads((folder / "golden.json").read_text())["prompt"]
    check_layers(node(folder), ids, reference(folder, ids))


@pytest.mark.shared
@pytest.mark.parametrize("name", GOLDEN)
def test_the_golden_greedy_tokens(shared, node, name):
    folder = shared / "golden" / f"qwen3_5-{name}"
    golden = json.loads((folder / "golden.json").read_text())
    built = node(folder)
    steps = len(golden["greedy"])
    assert built.greedy([golden["prompt"]], steps) == [golden["greedy"]]
    assert built.greedy([golden["prompt"]], steps, chunk=7) == [golden["greedy"]]
    handle = built.open(golden["prompt"])
    logits = built.step("prefill", [(handle, golden["prompt"])])["logits"][0, :8]
    want = torch.tensor(golden["last_logits_first8"])
    torch.testing.assert_close(logits, want, atol=5e-4, rtol=0)


@pytest.mark.shared
def test_slow_state_prompts_alone_and_eight_at_a_time(shared, node):
    """64 greedy tokens of 16 prompts of 1 to 300 tokens; no state is left by earlier requests."""
    folder = shared / "golden" / "qwen3_5-tiny-untied-8l-slow"
    cases = json.loads((folder / "golden.json").read_text())["cases"]
    built = node(folder)
    prompts, want = [c["prompt"] for c in cases], [c["greedy"] for c in cases]
    for prompt, tokens in list(zip(prompts, want, strict=True))[::5]:
        assert built.greedy([prompt], 64) == [tokens]
    assert built.greedy(prompts[:8], 64) == want[:8]
    assert built.greedy(prompts[8:], 64, chunk=33) == want[8:]


def logits_of_each_step(built, prompts, greedy, chunk=10**6):
    """Per prompt, our logits ``[1 + steps, V]``: its last position, then each token given back."""
    handles = [built.open(prompt) for prompt in prompts]
    found = [[] for _ in prompts]
    for start in range(0, max(map(len, prompts)), chunk):
        rows = [i for i, prompt in enumerate(prompts) if start < len(prompt)]
        given = [(handles[i], prompts[i][start : start + chunk]) for i in rows]
        for i, logits in zip(rows, built.step("prefill", given)["logits"], strict=True):
            found[i] = [logits]
    for tokens in zip(*greedy, strict=True):
        given = [(handle, [token]) for handle, token in zip(handles, tokens, strict=True)]
        for logits, mine in zip(built.step("decode", given)["logits"], found, strict=True):
            mine.append(logits)
    for handle in handles:
        built.close(handle)
    return [torch.stack(mine) for mine in found]


def check_each_step(model, built, cases, **given):
    prompts, greedy = [c["prompt"] for c in cases], [c["greedy"] for c in cases]
    for case, got in zip(cases, logits_of_each_step(built, prompts, greedy, **given), strict=True):
        ids = torch.tensor([case["prompt"] + case["greedy"]])
        with torch.no_grad():
            want = model(input_ids=ids).logits[0, len(case["prompt"]) - 1 :]
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, atol=5e-4, rtol=0)


@pytest.mark.shared
def test_logits_of_each_step_of_slow_states_are_transformers(shared, node, reference_model):
    """16 prompts of 1 to 300 tokens and 64 steps each, some alone, all with seven others."""
    folder = shared / "golden" / "qwen3_5-tiny-untied-8l-slow"
    cases = json.loads((folder / "golden.json").read_text())["cases"]
    built, model = node(folder), reference_model(folder)
    assert {len(case["greedy"]) for case in cases} == {64}
    check_each_step(model, built, cases[:8])
    check_each_step(model, built, cases[8:])
    check_each_step(model, built, cases[-1:], chunk=33)
    check_each_step(model, built, cases[:1])


@pytest.mark.shared
@pytest.mark.parametrize("name", GOLDEN)
def test_logits_of_each_step_are_transformers(shared, node, reference_model, name):
    folder = shared / "golden" / f"qwen3_5-{name}"
    golden = json.loads((folder / "golden.json").read_text())
    check_each_step(reference_model(folder), node(folder), [golden])


@pytest.mark.shared
def test_the_golden_logits_of_the_first_and_of_the_last_step(shared, node):
    """The numbers that were stored, where the reference is another version."""
    folder = shared / "golden" / "qwen3_5-tiny-untied-8l-slow"
    case = json.loads((folder / "golden.json").read_text())["cases"][-4]
    (logits,) = logits_of_each_step(node(folder), [case["prompt"]], [case["greedy"][:-1]])
    for step, name in ((0, "first"), (-1, "last")):
        want = torch.tensor(case[f"{name}_step_logits_first8"])
        torch.testing.assert_close(logits[step, :8], want, atol=5e-4, rtol=0)


@pytest.mark.parametrize("spelling", ["flat", "rope_scaling"])
def test_rope_settings_spelled_the_old_way_compute_the_same(folder, tiny, node, spelling):
    """QW-06"""
    ids = [(7 * i) % 1000 for i in range(300)]

    def logits(at):
        built = node(at)
        return built.step("prefill", [(built.open(ids), ids)])["logits"]

    changes = {"text_config.rope_parameters": None, "text_config.rope_theta": 10000000}
    changes["text_config.partial_rotary_factor"] = 0.25
    if spelling == "rope_scaling":
        changes["text_config.rope_scaling"] = {"type": "default", "mrope_section": [2, 1, 1]}
    at = folder(changes)
    (at / "model.safetensors").symlink_to(tiny / "model.safetensors")
    assert torch.equal(logits(at), logits(tiny))


def test_ids_that_no_token_has_are_never_sampled(tiny, node):
    built = node(tiny)
    with torch.no_grad():
        built.submodule.head.weight[1009:] = 100 * built.submodule.head.weight[5]
        built.submodule.head.weight[1010:] *= -1
    tokens = built.greedy([[3, 4, 5]], 12)[0]
    assert max(tokens) < 1009
