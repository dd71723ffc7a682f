"""Names and shapes of published checkpoints, dtypes, and exports that spell names otherwise."""

from __future__ import annotations

import json
import re
from itertools import count

import pytest
import torch
from safetensors.torch import load_file, save_file

from mstar_core.errors import CheckpointError
from mstar_core.model.load import random_weights
from mstar_core.model.weights import plan_weights


def unfold(name):
    """The names of a folded listing: ``{0..3}``, ``{0,2}``, ``{3..23 step 4}``."""
    found = re.search(r"\{([^}]*)\}", name)
    if not found:
        return [name]
    numbers = []
    for part in found[1].split(","):
        bounds = re.fullmatch(r"(\d+)\.\.(\d+)(?: step (\d+))?", part)
        if bounds:
            numbers += range(int(bounds[1]), int(bounds[2]) + 1, int(bounds[3] or 1))
        else:
            numbers.append(int(part))
    return [name.replace(found[0], str(n)) for n in numbers]


@pytest.mark.shared
@pytest.mark.parametrize("size", ["0.8B", "2B", "4B", "9B", "27B"])
def test_a_published_size_uses_every_name_of_its_listing(shared, tmp_path, node, size):
    published = json.loads((shared / "configs" / f"Qwen3.5-{size}.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(published["config"]))
    listing = json.loads((shared / "weights" / f"Qwen3.5-{size}.json").read_text())
    shapes = {n: tuple(key["shape"]) for key in listing["keys"] for n in unfold(key["name"])}
    assert len(shapes) == listing["tensors"]
    built = node(tmp_path, device="meta", max_rows=1, dtype=torch.bfloat16, load=False)
    maps = {"text": built.model.weight_map("text")}
    plan = plan_weights({"text": built.submodule}, maps, shapes)
    counts = published["_meta"]["parameters"]
    assert sum(p.numel() for p in built.submodule.parameters()) == counts["text"]
    aside = set(plan.set_aside)
    assert aside == {n for n in shapes if n.startswith(("model.visual.", "mtp."))}
    used = {piece.name for fill in plan.fills for piece in fill.pieces}
    assert used == set(shapes) - aside


def rewrite(tiny, folder, change):
    """The tiny checkpoint in ``folder`` with its tensors changed by ``change(tensors)``."""
    tensors = load_file(tiny / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return tensors


def logits_of(built):
    return built.step("prefill", [(built.open([5, 6, 7]), [5, 6, 7])])["logits"]


def test_a_text_only_export_without_the_inner_prefix_computes_the_same(tiny, folder, node):
    def shorten(tensors):
        for name in [n for n in tensors if n.startswith("model.language_model.")]:
            tensors[name.replace("language_model.", "")] = tensors.pop(name)

    at = folder(text_only=True)
    rewrite(tiny, at, shorten)
    assert torch.equal(logits_of(node(at)), logits_of(node(tiny)))


@pytest.mark.parametrize("stored", ["embed_tokens", "lm_head", "both"])
def test_a_tied_checkpoint_may_store_either_name_of_the_embedding(tiny, folder, node, stored):
    """W-04"""

    def tie(tensors):
        name = "model.language_model.embed_tokens.weight"
        tensors["lm_head.weight"] = tensors[name].clone()
        if stored != "both":
            del tensors[name if stored == "lm_head" else "lm_head.weight"]

    at = folder({"tie_word_embeddings": True})
    tensors = rewrite(tiny, at, tie)
    built = node(at)
    assert built.submodule.head.weight is built.submodule.embed
    kept = tensors.get("lm_head.weight", tensors.get("model.language_model.embed_tokens.weight"))
    assert torch.equal(built.submodule.embed, kept.float())


def test_an_untied_checkpoint_without_its_head_is_refused(tiny, folder, node):
    at = folder()
    rewrite(tiny, at, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"missing\s+lm_head\.weight"):
        node(at)


def test_a_missing_and_an_unknown_tensor_are_both_named(tiny, folder, node):
    at = folder()

    def spoil(tensors):
        del tensors["model.language_model.layers.3.self_attn.k_proj.weight"]
        tensors["model.language_model.layers.3.self_attn.extra"] = torch.zeros(3)

    rewrite(tiny, at, spoil)
    with pytest.raises(CheckpointError) as caught:
        node(at)
    assert "layers.3.self_attn.k_proj.weight" in str(caught.value)
    assert "layers.3.self_attn.extra" in str(caught.value)


def test_vision_and_draft_tensors_are_set_aside(tiny, folder, node):
    at = folder()
    extra = {"model.visual.pos_embed.weight": torch.ones(2, 2), "mtp.fc.weight": torch.ones(2, 2)}
    rewrite(tiny, at, lambda tensors: tensors.update(extra))
    assert torch.equal(logits_of(node(at)), logits_of(node(tiny)))


def test_what_is_stored_in_fp32_stays_exact_in_a_bf16_model(tiny, folder, node):
    """W-06"""
    at = folder()
    steps = count()

    def odd(tensors):
        for name in tensors:
            if name.endswith(("A_log", "linear_attn.norm.weight")):
                shape = tensors[name].shape
                tensors[name] = torch.full(shape, 0.1234567 + 1e-6 * next(steps))

    tensors = rewrite(tiny, at, odd)
    built = node(at, dtype=torch.bfloat16)
    root = "model.language_model.layers.0.linear_attn."
    mixer = built.submodule.layers[0].mixer
    assert mixer.inputs.dtype == torch.bfloat16
    assert torch.equal(mixer.a_log, tensors[root + "A_log"])
    assert torch.equal(mixer.out_norm, tensors[root + "norm.weight"])
    assert not torch.equal(mixer.a_log, mixer.a_log.bfloat16().float())
    assert torch.isfinite(logits_of(built)).all()


def test_a_later_release_that_stores_everything_in_bf16_is_taken(tiny, folder, node):
    at = folder()

    def narrow(tensors):
        for name in tensors:
            tensors[name] = tensors[name].bfloat16()

    tensors = rewrite(tiny, at, narrow)
    mixer = node(at).submodule.layers[0].mixer
    stored = tensors["model.language_model.layers.0.linear_attn.A_log"]
    assert torch.equal(mixer.a_log, stored.float())


def test_random_weights_give_finite_logits_that_differ(tiny, node):
    """QW-05"""
    built = node(tiny, load=False)
    random_weights({"text": built.submodule}, 1, "cpu")
    logits = logits_of(built)
    assert torch.isfinite(logits).all()
    assert logits.std() > 0.1
