"""A Whisper checkpoint's JSON files, checked field by field. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from mstar_core.errors import CheckpointError, Words
from mstar_core.model.json_fields import JsonFields

SAMPLE_RATE = 16_000
"""Samples per second of the sound that the model hears."""
HOP = 160
"""Samples from one mel frame to the next: 10 ms."""
FRAMES_PER_S = SAMPLE_RATE // HOP
FRAMES_PER_POSITION = 2
"""Mel frames that the second convolution folds into one encoder position."""
DTYPES = ("bfloat16", "float16", "float32")


@frozen(kw_only=True)
class Tokens:
    """The ids that steer the decoder, and what must not be sampled."""

    eot: int
    """Ends a transcript."""
    sot: int
    """Starts every prompt."""
    previous: int
    """Comes before text that was heard earlier."""
    no_timestamps: int
    """Last in a prompt that wants no timestamps; the id after it is the timestamp 0.00."""
    languages: Mapping[str, int]
    """Language code → id; empty for a model of English alone."""
    tasks: Mapping[str, int]
    """``transcribe`` and ``translate`` → id; empty for a model of English alone."""
    suppress: tuple[int, ...]
    """Never sampled."""
    begin_suppress: tuple[int, ...]
    """Not sampled as the first token."""
    max_initial_timestamp: int | None
    """The latest first timestamp, counted in steps of 0.02 s."""

    @property
    def timestamp_begin(self) -> int:
        """The id of the timestamp 0.00; all ids from here on are timestamps."""
        return self.no_timestamps + 1

    @property
    def no_speech(self) -> int:
        """The id that the model holds likely, behind the start, where nothing is said."""
        return self.no_timestamps - 1

    def language_of(self, id_: int) -> str:
        """The code of the language that ``id_`` names."""
        return next(code for code, known in self.languages.items() if known == id_)

    @property
    def multilingual(self) -> bool:
        """Whether a prompt names a language and a task."""
        return bool(self.languages)


@frozen(kw_only=True)
class WhisperConfig:
    """Sizes of encoder and decoder. Units: features, heads, layers, tokens, positions."""

    width: int
    mel_bins: int
    vocab_size: int
    encoder_layers: int
    encoder_heads: int
    encoder_ffn: int
    decoder_layers: int
    decoder_heads: int
    decoder_ffn: int
    source_positions: int
    """Encoder positions of one window (1500 in every published size)."""
    target_positions: int
    """Decoder positions: prompt and transcript together (448 in every published size)."""
    dtype: str
    """The type the weights are stored in, by torch's name."""
    alignment_heads: tuple[tuple[int, int], ...]
    """(layer, head) of the decoder's cross attentions that follow the speech as it is written."""
    median_width: int
    """Positions that an alignment is smoothed over, an odd number."""
    tokens: Tokens

    @property
    def window_frames(self) -> int:
        """Mel frames of one window."""
        return FRAMES_PER_POSITION * self.source_positions

    @property
    def window_samples(self) -> int:
        """Samples of one window at ``SAMPLE_RATE``."""
        return self.window_frames * HOP

    @property
    def window_seconds(self) -> float:
        """Seconds of one window (30 in every published size)."""
        return self.window_samples / SAMPLE_RATE


def read_config(folder: Path) -> WhisperConfig:
    """The configuration of the checkpoint in ``folder``.

    Raises CheckpointError naming the file and the field that is missing, of the wrong type, or
    at odds with another file.
    """
    config = JsonFields.read(folder / "config.json")
    kind = config.values.get("model_type", "whisper")
    if kind != "whisper":
        raise CheckpointError(
            where=f"{config.file}: model_type",
            got=Words(f"a checkpoint of another model, {kind!r}"),
            want="a Whisper checkpoint, 'whisper'",
            fix="point model.path at one, or name a config of that model "
            "(mstar-core list-plugins shows them)",
        )
    config.must_be("activation_function", "gelu", "gelu")
    config.must_be("scale_embedding", False, False)
    width = config.whole("d_model")
    for side in ("encoder", "decoder"):
        heads = config.whole(f"{side}_attention_heads")
        if width % heads:
            raise config.wrong(f"{side}_attention_heads", heads, f"a divisor of d_model, {width}")
    vocab_size = config.whole("vocab_size")
    mel_bins = config.whole("num_mel_bins")
    _check_extractor(folder / "preprocessor_config.json", mel_bins)
    generation = JsonFields.read(folder / "generation_config.json")
    return WhisperConfig(
        width=width,
        mel_bins=mel_bins,
        vocab_size=vocab_size,
        encoder_layers=config.whole("encoder_layers"),
        encoder_heads=config.whole("encoder_attention_heads"),
        encoder_ffn=config.whole("encoder_ffn_dim"),
        decoder_layers=config.whole("decoder_layers"),
        decoder_heads=config.whole("decoder_attention_heads"),
        decoder_ffn=config.whole("decoder_ffn_dim"),
        source_positions=config.whole("max_source_positions"),
        target_positions=config.whole("max_target_positions"),
        dtype=_dtype(config),
        alignment_heads=_alignment_heads(generation, config),
        median_width=_median_width(config),
        tokens=_tokens(generation, vocab_size),
    )


def _dtype(config: JsonFields) -> str:
    name = "dtype" if config.values.get("dtype") is not None else "torch_dtype"
    dtype = config.values.get(name, "float32")
    if dtype not in DTYPES:
        raise config.wrong(name, dtype, f"one of {', '.join(DTYPES)}")
    return str(dtype)


def _alignment_heads(given: JsonFields, config: JsonFields) -> tuple[tuple[int, int], ...]:
    """Those that the checkpoint names, or all of the upper half of the layers."""
    layers, heads = config.whole("decoder_layers"), config.whole("decoder_attention_heads")
    named = given.values.get("alignment_heads")
    if named is None:
        return tuple((i, n) for i in range(layers // 2, layers) for n in range(heads))
    fits = isinstance(named, list) and all(
        isinstance(pair, list)
        and [type(i) for i in pair] == [int, int]
        and 0 <= pair[0] < layers
        and 0 <= pair[1] < heads
        for pair in named
    )
    if not fits or not named:
        want = f"pairs of a layer below {layers} and a head below {heads}"
        raise given.wrong("alignment_heads", named, want)
    return tuple((layer, head) for layer, head in named)


def _median_width(config: JsonFields) -> int:
    width = config.values.get("median_filter_width", 7)
    if type(width) is not int or width < 1 or width % 2 == 0:
        raise config.wrong("median_filter_width", width, "an odd number of at least 1")
    return width


def _tokens(given: JsonFields, vocab_size: int) -> Tokens:
    languages = _ids_by_name(given, "lang_to_id", vocab_size)
    multilingual = given.values.get("is_multilingual")
    if type(multilingual) is not bool or multilingual != bool(languages):
        want = f"{bool(languages)}, as lang_to_id names {len(languages)} languages"
        raise given.wrong("is_multilingual", multilingual, want)
    initial = given.values.get("max_initial_timestamp_index")
    return Tokens(
        eot=given.whole("eos_token_id", most=vocab_size - 1),
        sot=given.whole("decoder_start_token_id", most=vocab_size - 1),
        previous=given.whole("prev_sot_token_id", most=vocab_size - 1),
        no_timestamps=given.whole("no_timestamps_token_id", most=vocab_size - 2),
        languages={name.strip("<|>"): id_ for name, id_ in languages.items()},
        tasks=_ids_by_name(given, "task_to_id", vocab_size),
        suppress=_ids(given, "suppress_tokens", vocab_size),
        begin_suppress=_ids(given, "begin_suppress_tokens", vocab_size),
        max_initial_timestamp=None
        if initial is None
        else given.whole("max_initial_timestamp_index", most=vocab_size - 1),
    )


def _ids(given: JsonFields, name: str, vocab_size: int) -> tuple[int, ...]:
    """Token ids; those beyond the vocabulary name nothing and are left out."""
    value = given.values.get(name) or []
    if not isinstance(value, list) or any(type(id_) is not int for id_ in value):
        raise given.wrong(name, value, "a list of token ids")
    return tuple(id_ for id_ in value if 0 <= id_ < vocab_size)


def _ids_by_name(given: JsonFields, name: str, vocab_size: int) -> dict[str, int]:
    """Names to token ids; none where the file has none."""
    return given.ids_by_name(name, vocab_size) if given.has(name) else {}


def _check_extractor(file: Path, mel_bins: int) -> None:
    """The feature extractor's file, where there is one, must describe the sound we compute."""
    if not file.is_file():
        return
    given = JsonFields.read(file)
    for name, expected in (
        ("feature_size", mel_bins),
        ("sampling_rate", SAMPLE_RATE),
        ("hop_length", HOP),
        ("n_fft", 400),
    ):
        value = given.values.get(name, expected)
        if value != expected:
            why = " (num_mel_bins of config.json)" if name == "feature_size" else ""
            raise given.wrong(name, value, f"{expected}{why}")
