"""Which stored tensors fill which parameters."""

from __future__ import annotations

from collections.abc import Iterator

from mstar_core.model.weights import Rule, WeightMap
from mstar_qwen35.config import FULL, Qwen35Config

ROOT = "model.language_model."
"""Prefix of the published checkpoints; a text-only export writes ``model.``."""
_EMBEDDING, _HEAD = f"{ROOT}embed_tokens.weight", "lm_head.weight"
_SET_ASIDE = ("model.visual.*", "visual.*", "mtp.*")
"""The vision tower and the draft head, which are not served."""


def weight_map(config: Qwen35Config) -> WeightMap:
    """The map of one dense size. A tied checkpoint may store either name of the embedding."""
    return WeightMap(
        rules=tuple(_rules(config)),
        set_aside=_SET_ASIDE,
        aliases={ROOT: ("model.",)},
        tied=((_EMBEDDING, _HEAD),) if config.tied else (),
    )


def _rules(config: Qwen35Config) -> Iterator[Rule]:
    yield Rule.of("embed", _EMBEDDING)
    yield Rule.of("head.norm.offset", f"{ROOT}norm.weight")
    if not config.tied:
        yield Rule.of("head.weight", _HEAD)
    for i, kind in enumerate(config.layer_types):
        to, at = f"layers.{i}.", f"{ROOT}layers.{i}."
        yield Rule.of(f"{to}mixer.norm.offset", f"{at}input_layernorm.weight")
        yield Rule.of(f"{to}mlp.norm.offset", f"{at}post_attention_layernorm.weight")
        yield _stacked(f"{to}mlp.gate_up", f"{at}mlp.", "gate_proj", "up_proj")
        yield _stacked(f"{to}mlp.down", f"{at}mlp.", "down_proj")
        if kind == FULL:
            yield from _full_attention(f"{to}mixer.", f"{at}self_attn.")
        else:
            yield from _linear_attention(f"{to}mixer.", f"{at}linear_attn.")


def _full_attention(to: str, at: str) -> Iterator[Rule]:
    yield _stacked(f"{to}qkv", at, "q_proj", "k_proj", "v_proj")
    yield _stacked(f"{to}out", at, "o_proj")
    yield Rule.of(f"{to}q_norm.offset", f"{at}q_norm.weight")
    yield Rule.of(f"{to}k_norm.offset", f"{at}k_norm.weight")


def _linear_attention(to: str, at: str) -> Iterator[Rule]:
    yield _stacked(f"{to}inputs", at, "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
    yield _stacked(f"{to}out", at, "out_proj")
    yield _stacked(f"{to}conv", at, "conv1d")
    yield Rule.of(f"{to}out_norm", f"{at}norm.weight")
    yield Rule.of(f"{to}a_log", f"{at}A_log")
    yield Rule.of(f"{to}dt_bias", f"{at}dt_bias")


def _stacked(target: str, at: str, *names: str) -> Rule:
    return Rule.of(target, *(f"{at}{name}.weight" for name in names))
