"""``config.json`` of a dense Qwen3.5 checkpoint, checked field by field. Free of torch.

Two forms are read: the published root (``text_config`` beside ``vision_config``) and a text-only
export, whose root is the text configuration itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import frozen

from mstar_core.model.json_fields import JsonFields

LINEAR, FULL = "linear_attention", "full_attention"
DTYPES = ("bfloat16", "float16", "float32")


@frozen(kw_only=True)
class Rope:
    """How queries and keys are turned: the first ``rotary_dim`` features of a head, half-split."""

    rotary_dim: int
    theta: float
    sections: tuple[int, ...]
    """Frequencies read off the time, height and width positions; empty where there is one axis."""
    interleaved: bool


@frozen(kw_only=True)
class Qwen35Config:
    """The sizes of the text model. Units: features, heads, layers, tokens."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_k_heads: int
    num_v_heads: int
    k_dim: int
    v_dim: int
    conv_taps: int
    eps: float
    max_context: int
    tied: bool
    rope: Rope
    eos_ids: frozenset[int]
    dtype: str
    has_vision: bool

    @property
    def num_full(self) -> int:
        """Layers that attend over a KV pool."""
        return self.layer_types.count(FULL)

    @property
    def num_linear(self) -> int:
        """Layers that keep a recurrent state."""
        return self.layer_types.count(LINEAR)

    @property
    def key_width(self) -> int:
        """Features of all key heads of a linear layer."""
        return self.num_k_heads * self.k_dim

    @property
    def value_width(self) -> int:
        """Features of all value heads of a linear layer."""
        return self.num_v_heads * self.v_dim

    @property
    def conv_channels(self) -> int:
        """Channels of a linear layer's convolution: queries, keys and values."""
        return 2 * self.key_width + self.value_width


def read_config(folder: Path) -> Qwen35Config:
    """The configuration of the checkpoint in ``folder``.

    Raises CheckpointError naming the file and the field that is missing, of the wrong type, or of
    an architecture that this plugin does not serve (mixtures of experts, scaled rope).
    """
    root = JsonFields.read(folder / "config.json")
    _refuse_experts(root)
    text = root.section("text_config") if root.has("text_config") else root
    _refuse_experts(text)
    _check_architecture(text)
    heads, kv_heads = _grouped(text, "num_attention_heads", "num_key_value_heads")
    v_heads, k_heads = _grouped(text, "linear_num_value_heads", "linear_num_key_heads")
    head_dim = text.whole("head_dim")
    generation = folder / "generation_config.json"
    eos = {*root.wholes("eos_token_id"), *text.wholes("eos_token_id")}
    if generation.is_file():
        eos.update(JsonFields.read(generation).wholes("eos_token_id"))
    return Qwen35Config(
        vocab_size=text.whole("vocab_size"),
        hidden_size=text.whole("hidden_size"),
        intermediate_size=text.whole("intermediate_size"),
        layer_types=_layer_types(text),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        num_k_heads=k_heads,
        num_v_heads=v_heads,
        k_dim=text.whole("linear_key_head_dim"),
        v_dim=text.whole("linear_value_head_dim"),
        conv_taps=text.whole("linear_conv_kernel_dim", least=2),
        eps=text.number("rms_norm_eps"),
        max_context=text.whole("max_position_embeddings"),
        tied=root.flag("tie_word_embeddings", text.flag("tie_word_embeddings", False)),
        rope=_rope(text, head_dim),
        eos_ids=frozenset(eos),
        dtype=_dtype(root, text),
        has_vision=root.has("vision_config"),
    )


def _refuse_experts(fields: JsonFields) -> None:
    kind = fields.word("model_type", "")
    if "moe" in kind or fields.has("num_experts"):
        raise fields.wrong(
            "model_type",
            kind,
            "qwen3_5, a dense model (mixtures of experts are not served)",
            "use one of the dense sizes: 0.8B, 2B, 4B, 9B, 27B",
        )
    if not kind.startswith("qwen3_5"):
        raise fields.wrong(
            "model_type",
            kind,
            "qwen3_5 or qwen3_5_text",
            "point model.path at a Qwen3.5 checkpoint, or use the plugin of this model",
        )


def _check_architecture(text: JsonFields) -> None:
    text.must_be("hidden_act", "silu", "silu")
    text.must_be("attention_bias", False, False)
    text.must_be("attn_output_gate", True, True)
    text.must_be("output_gate_type", "swish", "swish")


def _grouped(text: JsonFields, many: str, few: str) -> tuple[int, int]:
    """Two head counts, of which the first is a multiple of the second."""
    heads, groups = text.whole(many), text.whole(few)
    if heads % groups:
        raise text.wrong(many, heads, f"a multiple of {few}, {groups} (heads)")
    return heads, groups


def _layer_types(text: JsonFields) -> tuple[str, ...]:
    layers = text.whole("num_hidden_layers")
    if text.has("layer_types"):
        kinds = text.values["layer_types"]
    else:
        every = text.whole("full_attention_interval")
        kinds = [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or set(kinds) != {LINEAR, FULL}:
        want = f"a list of {layers} kinds (num_hidden_layers), some {LINEAR} and some {FULL}"
        raise text.wrong("layer_types", kinds, want)
    return tuple(kinds)


def _rope(text: JsonFields, head_dim: int) -> Rope:
    """Rope settings, nested in ``rope_parameters`` or ``rope_scaling``, or flat beside them."""
    nested = next((n for n in ("rope_parameters", "rope_scaling") if text.has(n)), None)
    inner = text.section(nested) if nested else text
    named = next((n for n in ("rope_type", "type") if inner.has(n)), "rope_type")
    kind = inner.word(named, "default")
    if kind not in ("default", "mrope"):
        raise inner.wrong(
            named, kind, "'default' (scaled rope is not served)", "remove the scaling"
        )
    holder = inner if inner.has("partial_rotary_factor") else text
    rotary_dim = int(head_dim * holder.number("partial_rotary_factor"))
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise holder.wrong(
            "partial_rotary_factor",
            holder.values["partial_rotary_factor"],
            f"a share of head_dim, {head_dim}, that gives an even number of features",
        )
    sections = inner.wholes("mrope_section")
    if sections and (len(sections) != 3 or sum(sections) != rotary_dim // 2):
        raise inner.wrong(
            "mrope_section",
            list(sections),
            f"three whole numbers that sum to {rotary_dim // 2} (half of the turning features)",
        )
    return Rope(
        rotary_dim=rotary_dim,
        theta=(inner if inner.has("rope_theta") else text).number("rope_theta"),
        sections=sections,
        interleaved=inner.flag("mrope_interleaved", True),
    )


def _dtype(root: JsonFields, text: JsonFields) -> str:
    for fields in (text, root):
        for name in ("dtype", "torch_dtype"):
            if fields.has(name):
                value: Any = fields.values[name]
                if value not in DTYPES:
                    raise fields.wrong(name, value, f"one of {', '.join(DTYPES)}")
                return str(value)
    return "bfloat16"
