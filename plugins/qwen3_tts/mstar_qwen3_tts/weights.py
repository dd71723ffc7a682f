"""Which stored tensors fill which parameters."""

from __future__ import annotations

from collections.abc import Iterator

from mstar_core.model.weights import Rule, WeightMap
from mstar_qwen3_tts.config import TtsConfig
from mstar_qwen3_tts.sizes import CodecConfig

_RENAMED = {
    "attn_norm": ("input_layernorm.weight",),
    "qkv": tuple(f"self_attn.{each}_proj.weight" for each in "qkv"),
    "out": ("self_attn.o_proj.weight",),
    "mlp_norm": ("post_attention_layernorm.weight",),
    "gate_up": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "down": ("mlp.down_proj.weight",),
}
_NORMED = {"q_norm": ("self_attn.q_norm.weight",), "k_norm": ("self_attn.k_norm.weight",)}
_SCALED = {
    "out_scale": ("self_attn_layer_scale.scale",),
    "down_scale": ("mlp_layer_scale.scale",),
}


def talker_weight_map(config: TtsConfig) -> WeightMap:
    """Where talker and code predictor come from."""
    text, inner = "talker.text_projection.linear_fc", "talker.code_predictor"
    later = range(config.code_groups - 1)
    rules = [
        Rule.of("text_table", "talker.model.text_embedding.weight"),
        Rule.of("code_table", "talker.model.codec_embedding.weight"),
        Rule.of("norm", "talker.model.norm.weight"),
        Rule.of("head", "talker.codec_head.weight"),
        Rule.of("predictor.norm", f"{inner}.model.norm.weight"),
        Rule.of("predictor.tables", *(f"{inner}.model.codec_embedding.{i}.weight" for i in later)),
        Rule.of("predictor.heads", *(f"{inner}.lm_head.{i}.weight" for i in later)),
    ]
    for n in "12":
        rules.append(Rule.of(f"fc{n}", f"{text}{n}.weight"))
        rules.append(Rule.of(f"fc{n}_bias", f"{text}{n}.bias"))
    if config.talker.hidden != config.predictor.hidden:
        narrow = f"{inner}.small_to_mtp_projection"
        rules.append(Rule.of("predictor.narrow", f"{narrow}.weight"))
        rules.append(Rule.of("predictor.narrow_bias", f"{narrow}.bias"))
    for target, source, sizes in (
        ("layers", "talker.model.layers", config.talker),
        ("predictor.layers", f"{inner}.model.layers", config.predictor),
    ):
        rules += _layers(target, source, sizes.layers, normed=True, scaled=False)
    return WeightMap(rules=tuple(rules))


def codec_weight_map(config: CodecConfig) -> WeightMap:
    """Parameters take the stored tensor of their own name, but for these."""
    books = ["rvq_first.vq.layers.0"]
    books += [f"rvq_rest.vq.layers.{i}" for i in range(config.codebooks - 1)]
    inside = [f"decoder.quantizer.{book}._codebook" for book in books]
    stack = "decoder.pre_transformer"
    rules = (
        Rule.of("decoder.codebooks.sums", *(f"{book}.embedding_sum" for book in inside)),
        Rule.of("decoder.codebooks.usage", *(f"{book}.cluster_usage" for book in inside)),
        Rule.of("decoder.codebooks.first", "decoder.quantizer.rvq_first.output_proj.weight"),
        Rule.of("decoder.codebooks.rest", "decoder.quantizer.rvq_rest.output_proj.weight"),
        Rule.of(f"{stack}.norm", f"{stack}.norm.weight"),
        *_layers(
            f"{stack}.layers", f"{stack}.layers", config.stack.layers, normed=False, scaled=True
        ),
    )
    aside = ("decoder.quantizer.*.input_proj.weight", "encoder.*")
    return WeightMap(rules=rules, set_aside=aside)


def _layers(target: str, source: str, layers: int, *, normed: bool, scaled: bool) -> Iterator[Rule]:
    """What fills the layers ``target.0``, ``target.1``, … from stored ``source.0``, …"""
    renamed = _RENAMED | (_NORMED if normed else {}) | (_SCALED if scaled else {})
    for i in range(layers):
        for name, stored in renamed.items():
            yield Rule.of(f"{target}.{i}.{name}", *(f"{source}.{i}.{each}" for each in stored))
