"""Which stored tensor fills which parameter: the published names, without their ``model.NODE.``."""

from __future__ import annotations

from collections.abc import Iterator

from mstar_core.model.weights import Rule, WeightMap
from mstar_whisper.config import WhisperConfig

_ATTENTIONS = {"encoder": ("self_attn",), "decoder": ("self_attn", "encoder_attn")}
_OUTSIDE = {
    "encoder": ("conv1", "conv2", "layer_norm"),
    "decoder": ("layer_norm",),
}
_TABLES = {"encoder": ("embed_positions",), "decoder": ("embed_positions", "embed_tokens")}
_HEAD = ("model.decoder.embed_tokens.weight", "proj_out.weight")
"""The head is the token table; an export may store it under either name, or both."""


def weight_map(config: WhisperConfig, node: str) -> WeightMap:
    """The map of the node ``encoder`` or ``decoder``: one stored tensor a parameter."""
    num_layers = config.encoder_layers if node == "encoder" else config.decoder_layers
    names = [*_outside(node)]
    names += [f"layers.{i}.{name}" for i in range(num_layers) for name in _in_layer(node)]
    rules = tuple(Rule.of(name, f"model.{node}.{name}") for name in names)
    return WeightMap(rules=rules, tied=(_HEAD,))


def _outside(node: str) -> Iterator[str]:
    yield from (f"{name}.weight" for name in _TABLES[node])
    for name in _OUTSIDE[node]:
        yield from _both(name)


def _in_layer(node: str) -> Iterator[str]:
    for attention in _ATTENTIONS[node]:
        yield f"{attention}.k_proj.weight"
        for part in ("q_proj", "v_proj", "out_proj"):
            yield from _both(f"{attention}.{part}")
        yield from _both(f"{attention}_layer_norm")
    for name in ("fc1", "fc2", "final_layer_norm"):
        yield from _both(name)


def _both(name: str) -> tuple[str, str]:
    return f"{name}.weight", f"{name}.bias"
