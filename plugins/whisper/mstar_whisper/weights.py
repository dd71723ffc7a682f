"""Which stored tensors fill which parameter.

Most bear the published names without their ``model.NODE.``; projections of the same input are one.
"""

from __future__ import annotations

from collections.abc import Iterator

from mstar_core.model.weights import Rule, WeightMap
from mstar_whisper.config import WhisperConfig

_LISTENING = ("encoder_attn.q_proj", "encoder_attn.out_proj", "encoder_attn_layer_norm")
_OUTSIDE = {
    "encoder": ("conv1", "conv2", "layer_norm"),
    "decoder": ("layer_norm",),
}
_TABLES = {"encoder": ("embed_positions",), "decoder": ("embed_positions", "embed_tokens")}
_HEAD = ("model.decoder.embed_tokens.weight", "proj_out.weight")
"""The head is the token table; an export may store it under either name, or both."""


def weight_map(config: WhisperConfig, node: str) -> WeightMap:
    """The map of the node ``encoder`` or ``decoder``."""
    num_layers = config.encoder_layers if node == "encoder" else config.decoder_layers
    filled: dict[str, tuple[str, ...]] = {name: (name,) for name in _outside(node)}
    for i in range(num_layers):
        for target, names in _in_layer(node):
            filled[f"layers.{i}.{target}"] = tuple(f"layers.{i}.{name}" for name in names)
    rules = tuple(
        Rule.of(target, *(f"model.{node}.{name}" for name in names))
        for target, names in filled.items()
    )
    return WeightMap(rules=rules, tied=(_HEAD,))


def _outside(node: str) -> Iterator[str]:
    yield from (f"{name}.weight" for name in _TABLES[node])
    for name in _OUTSIDE[node]:
        yield from _both(name)


def _in_layer(node: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each parameter of a layer, and the stored tensors that fill it."""
    yield from _packed("qkv", "self_attn", "qkv")
    plain = {"out_proj": "self_attn.out_proj"}
    if node == "decoder":
        yield from _packed("encoder_attn.kv", "encoder_attn", "kv")
        plain |= {name: name for name in _LISTENING}
    plain |= {name: name for name in ("self_attn_layer_norm", "fc1", "fc2", "final_layer_norm")}
    for target, name in plain.items():
        yield from zip(_both(target), ((each,) for each in _both(name)), strict=True)


def _packed(target: str, attention: str, parts: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Keys have no bias."""
    yield f"{target}.weight", tuple(f"{attention}.{part}_proj.weight" for part in parts)
    with_bias = parts.replace("k", "")
    yield f"{target}.biases", tuple(f"{attention}.{part}_proj.bias" for part in with_bias)


def _both(name: str) -> tuple[str, str]:
    return f"{name}.weight", f"{name}.bias"
