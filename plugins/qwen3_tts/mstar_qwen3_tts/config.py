"""``config.json`` of a Qwen3-TTS checkpoint and of its codec, field by field. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from mstar_core.errors import CheckpointError, Words
from mstar_core.model.json_fields import JsonFields
from mstar_qwen3_tts.ear_sizes import EarSizes, read_ears
from mstar_qwen3_tts.sizes import CodecConfig, StackConfig, read_codec, read_stack

CODEC_FOLDER = "speech_tokenizer"
"""Where a checkpoint keeps its codec."""
MODES = ("base", "custom_voice", "voice_design")
RESERVED = 1024
"""Ids at the end of the codec vocabulary that are no sound."""
RECORDED_FRAMES = 375
"""Frames of a recording at most: half a minute."""


@frozen(kw_only=True)
class TextIds:
    """Ids of the text vocabulary that a prompt is made with."""

    pad: int
    """Beside sound for which there is no text."""
    bos: int
    eos: int
    """Ends the text that is spoken."""


@frozen(kw_only=True)
class CodecIds:
    """Ids of the codec vocabulary that are no sound."""

    pad: int
    bos: int
    eos: int
    """Ends the sound."""
    think: int
    no_think: int
    think_bos: int
    think_eos: int


@frozen(kw_only=True)
class TtsConfig:
    """A talker, its code predictor and its codec."""

    mode: str
    """``base`` (clones a voice), ``custom_voice`` (named speakers) or ``voice_design``."""
    size: str
    """``0b6`` or ``1b7``."""
    vocab_size: int
    """Of the codec: the ids that the talker samples."""
    text_vocab_size: int
    text_hidden: int
    talker: StackConfig
    predictor: StackConfig
    predictor_vocab: int
    code_groups: int
    """Codes of one frame."""
    max_context: int
    text: TextIds
    codec: CodecIds
    languages: Mapping[str, int]
    """Language and dialect → id of the codec vocabulary."""
    speakers: Mapping[str, int]
    """Name → id of the codec vocabulary; empty where no speaker has a name."""
    dialects: Mapping[str, str]
    """Speaker → the dialect spoken; others are not in it."""
    decoder: CodecConfig
    ears: EarSizes | None
    """How a base model hears a recording; None where the voices have names, or are described."""

    @property
    def first_reserved(self) -> int:
        """Codec ids from here on are no sound; none but the end is sampled."""
        return self.vocab_size - RESERVED

    @property
    def heard_speaker(self) -> int:
        """In the place of a codec id: the vector of the speaker who was heard."""
        return self.vocab_size

    @property
    def heard_frames(self) -> range:
        """In the place of codec ids: the frames of the recording that was heard."""
        return range(self.vocab_size + 1, self.vocab_size + 1 + RECORDED_FRAMES)

    @property
    def imitates(self) -> bool:
        """Whether it speaks with a voice that it has heard."""
        return self.ears is not None

    @property
    def obeys(self) -> bool:
        """Whether an instruction in words changes how the model speaks."""
        return self.mode == "voice_design" or (self.mode == "custom_voice" and self.size != "0b6")


def read_config(folder: Path) -> TtsConfig:
    """The configuration of the checkpoint in ``folder`` and of its codec.

    Raises CheckpointError naming the file and the field that is missing, of the wrong type, or of
    an architecture that this plugin does not serve.
    """
    root = _root(folder / "config.json")
    root.must_be("tokenizer_type", "qwen3_tts_tokenizer_12hz", "qwen3_tts_tokenizer_12hz")
    mode = root.word("tts_model_type", "")
    if mode not in MODES:
        raise root.wrong("tts_model_type", mode, f"one of {', '.join(MODES)}")
    talker = root.section("talker_config")
    predictor = talker.section("code_predictor_config")
    for each in (talker, predictor):
        each.must_be("hidden_act", "silu", "silu")
        each.must_be("attention_bias", False, False)
        each.must_be("use_sliding_window", False, False)
    vocab, groups = talker.whole("vocab_size", least=RESERVED + 1), talker.whole("num_code_groups")
    speakers = talker.ids_by_name("spk_id", vocab)
    languages = talker.ids_by_name("codec_language_id", vocab)
    codec = JsonFields.read(folder / CODEC_FOLDER / "config.json")
    decoder, stack = read_codec(codec), read_stack(talker)
    if decoder.codebooks != groups:
        raise talker.wrong("num_code_groups", groups, f"the codec's {decoder.codebooks} codebooks")
    return TtsConfig(
        mode=mode,
        size=root.word("tts_model_size", ""),
        vocab_size=vocab,
        text_vocab_size=talker.whole("text_vocab_size"),
        text_hidden=talker.whole("text_hidden_size"),
        talker=stack,
        predictor=read_stack(predictor),
        predictor_vocab=predictor.whole("vocab_size"),
        code_groups=groups,
        max_context=talker.whole("max_position_embeddings"),
        text=TextIds(**_ids(root, "tts_{}_token_id", ("pad", "bos", "eos"))),
        codec=_codec_ids(talker),
        languages=languages,
        speakers=speakers,
        dialects=_dialects(talker, speakers, languages),
        decoder=decoder,
        ears=read_ears(root, codec, stack.hidden) if mode == "base" else None,
    )


def _root(file: Path) -> JsonFields:
    """The description of a checkpoint of this model. Raises CheckpointError for another's."""
    root = JsonFields.read(file)
    kind = root.word("model_type", "qwen3_tts")
    if kind != "qwen3_tts":
        raise CheckpointError(
            where=f"{root.file}: model_type",
            got=Words(f"a checkpoint of another model, {kind!r}"),
            want="a Qwen3-TTS checkpoint, 'qwen3_tts'",
            fix="point model.path at one, or name a config of that model "
            "(mstar-core list-plugins shows them)",
        )
    return root


def _ids(given: JsonFields, pattern: str, names: tuple[str, ...]) -> dict[str, int]:
    return {name: given.whole(pattern.format(name), least=0) for name in names}


def _codec_ids(talker: JsonFields) -> CodecIds:
    return CodecIds(
        pad=talker.whole("codec_pad_id", least=0),
        bos=talker.whole("codec_bos_id", least=0),
        eos=talker.whole("codec_eos_token_id", least=0),
        think=talker.whole("codec_think_id", least=0),
        no_think=talker.whole("codec_nothink_id", least=0),
        think_bos=talker.whole("codec_think_bos_id", least=0),
        think_eos=talker.whole("codec_think_eos_id", least=0),
    )


def _dialects(
    talker: JsonFields, speakers: Mapping[str, int], languages: Mapping[str, int]
) -> dict[str, str]:
    """``spk_is_dialect``: false, or the name of the dialect."""
    given = talker.values.get("spk_is_dialect") or {}
    found = {}
    for speaker, dialect in given.items():
        if speaker in speakers and dialect is not False:
            if dialect not in languages:
                want = f"false, or one of {', '.join(sorted(languages))}"
                raise talker.wrong(f"spk_is_dialect.{speaker}", dialect, want)
            found[speaker] = dialect
    return found
