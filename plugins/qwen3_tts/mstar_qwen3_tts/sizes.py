"""Sizes of a stack of layers and of the codec's decoder, read field by field. Free of torch."""

from __future__ import annotations

from math import prod

from attrs import frozen

from mstar_core.model.json_fields import JsonFields


@frozen(kw_only=True)
class StackConfig:
    """Sizes of a stack of attention and MLP layers. Units: features, heads, layers."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float


@frozen(kw_only=True)
class CodecConfig:
    """The codec's decoder: sizes in features and channels."""

    codebooks: int
    codebook_size: int
    codebook_width: int
    latent: int
    stack: StackConfig
    window: int
    """Frames that an attention sees, its own included."""
    decoder_width: int
    upsampling: tuple[int, ...]
    """Factors before the wave decoder."""
    rates: tuple[int, ...]
    """Factors of the wave decoder's blocks."""
    sample_rate: int

    @property
    def samples_per_frame(self) -> int:
        """Samples that one frame of codes becomes."""
        return prod(self.upsampling) * prod(self.rates)


def read_codec(root: JsonFields) -> CodecConfig:
    """The decoder of the codec that ``root`` describes. Raises CheckpointError."""
    given = root.section("decoder_config")
    given.must_be("hidden_act", "silu", "silu")
    given.must_be("num_semantic_quantizers", 1, 1)
    codec = CodecConfig(
        codebooks=given.whole("num_quantizers", least=2),
        codebook_size=given.whole("codebook_size"),
        codebook_width=given.whole("codebook_dim"),
        latent=given.whole("latent_dim"),
        stack=read_stack(given),
        window=given.whole("sliding_window", least=2),
        decoder_width=given.whole("decoder_dim"),
        upsampling=given.sizes("upsampling_ratios"),
        rates=given.sizes("upsample_rates"),
        sample_rate=root.whole("output_sample_rate"),
    )
    root.must_be("decode_upsample_rate", codec.samples_per_frame, codec.samples_per_frame)
    return codec


def read_stack(given: JsonFields, eps: str = "rms_norm_eps") -> StackConfig:
    """The sizes of a stack, by the names that every part of a checkpoint gives them; ``eps`` is
    the field of what norms add."""
    stack = StackConfig(
        layers=given.whole("num_hidden_layers"),
        hidden=given.whole("hidden_size"),
        inner=given.whole("intermediate_size"),
        heads=given.whole("num_attention_heads"),
        kv_heads=given.whole("num_key_value_heads"),
        head_dim=given.whole("head_dim"),
        eps=given.number(eps),
        theta=given.number("rope_theta"),
    )
    if stack.heads % stack.kv_heads:
        want = f"a divisor of num_attention_heads, {stack.heads}"
        raise given.wrong("num_key_value_heads", stack.kv_heads, want)
    return stack
