"""Sizes of the two encoders that a base model hears a recording with. Free of torch."""

from __future__ import annotations

from math import prod

from attrs import frozen

from mstar_core.errors import Words
from mstar_core.model.json_fields import JsonFields
from mstar_qwen3_tts.sizes import StackConfig, read_stack

CHANNELS, TAPS, DILATIONS = (512, 512, 512, 512, 1536), (5, 3, 3, 3, 1), (1, 2, 3, 4, 1)
"""Of the speaker encoder's blocks, where a checkpoint does not say."""
FRAME = 1920
"""Samples of one frame."""


@frozen(kw_only=True)
class SpeakerSizes:
    """The speaker encoder: sizes in channels, bins and taps."""

    bins: int
    width: int
    """Features of the speaker's vector."""
    channels: tuple[int, ...]
    """Of the first block, of those that follow, and of what joins them."""
    taps: tuple[int, ...]
    dilations: tuple[int, ...]
    attention: int
    parts: int
    """Into which the channels of a block are split."""
    squeezed: int


@frozen(kw_only=True)
class RecordingSizes:
    """The encoder of recordings into codes: sizes in channels, features and codes."""

    filters: int
    """Channels behind the first convolution; each step of the way down doubles them."""
    rates: tuple[int, ...]
    """Factors by which the convolutions shorten the sound, in order."""
    stack: StackConfig
    codebook_size: int
    codebook_width: int
    codes: int
    """Codes of one frame that are used."""


@frozen(kw_only=True)
class EarSizes:
    """Both encoders."""

    speaker: SpeakerSizes
    recording: RecordingSizes


def read_speaker(given: JsonFields, width: int) -> SpeakerSizes:
    """The speaker encoder's sizes; ``width`` is the talker's. Raises CheckpointError."""
    given.must_be("sample_rate", 24000, 24000)
    found = given.whole("enc_dim", 1024)
    if found != width:
        raise given.wrong("enc_dim", found, f"the talker's hidden_size, {width}")
    listed = {
        "enc_channels": CHANNELS,
        "enc_kernel_sizes": TAPS,
        "enc_dilations": DILATIONS,
    }
    channels, taps, dilations = (
        given.sizes(name) if given.has(name) else default for name, default in listed.items()
    )
    parts = given.whole("enc_res2net_scale", 8, least=2)
    if not len(channels) == len(taps) == len(dilations) >= 3:
        raise given.wrong("enc_channels", channels, "as many as taps and dilations, three or more")
    if any(each % parts for each in channels[1:-1]) or len(set(channels[:-1])) > 1:
        want = f"one number of channels, a multiple of enc_res2net_scale ({parts}), and a last one"
        raise given.wrong("enc_channels", channels, want)
    return SpeakerSizes(
        bins=given.whole("mel_dim", 128),
        width=width,
        channels=channels,
        taps=taps,
        dilations=dilations,
        attention=given.whole("enc_attention_channels", 128),
        parts=parts,
        squeezed=given.whole("enc_se_channels", 128),
    )


def read_ears(root: JsonFields, codec: JsonFields, width: int) -> EarSizes:
    """Both encoders of a base model; ``width`` is the talker's. Raises CheckpointError."""
    speaker = read_speaker(root.section("speaker_encoder_config"), width)
    return EarSizes(speaker=speaker, recording=read_recording(codec))


def read_recording(root: JsonFields) -> RecordingSizes:
    """The sizes of the codec's encoder; ``root`` describes the codec. Raises CheckpointError."""
    given = root.section("encoder_config")
    plain = {
        "audio_channels": 1,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "residual_kernel_size": 3,
        "num_residual_layers": 1,
        "compress": 2,
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "pad_mode": "constant",
        "hidden_act": "gelu",
        "num_semantic_quantizers": 1,
        "sampling_rate": 24000,
    }
    for name, value in plain.items():
        given.must_be(name, value, value)
    root.must_be("encode_downsample_rate", FRAME, FRAME)
    rates = given.sizes("upsampling_ratios")[::-1]
    sizes = RecordingSizes(
        filters=given.whole("num_filters"),
        rates=rates,
        stack=read_stack(given, eps="norm_eps"),
        codebook_size=given.whole("codebook_size"),
        codebook_width=given.whole("codebook_dim"),
        codes=root.whole("encoder_valid_num_quantizers", least=2),
    )
    shortened = 2 * prod(rates)
    if shortened != FRAME:
        got = Words(f"factors that make {shortened} samples a frame")
        raise given.wrong("upsampling_ratios", got, f"{FRAME} samples a frame")
    return sizes
