"""What a person gives the front, and the request or the error that comes of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mstar_qwen3_tts.config import read_config
from mstar_qwen3_tts.front import Qwen3TTSFront
from mstar_qwen3_tts.heard import HeardVoice
from mstar_qwen3_tts.options import Qwen3TTSOptions
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import CheckpointError, RequestError

TURN = [70, 71, 72, 3, 4, 5, 73, 74, 70, 71, 72]
PAD, BOS, EOS = 90, 91, 92
C_PAD, C_BOS, THINK, NO_THINK, THINK_BOS, THINK_EOS = 32, 33, 35, 36, 37, 38
ENGLISH, CHINESE, SICHUAN, ANN, BO = 50, 51, 52, 60, 61
SPECIAL = {"<|im_start|>": 70, "assistant": 71, "\n": 72, "<|im_end|>": 73, "user": 75}


@pytest.fixture
def front(small):
    return Qwen3TTSFront(small, read_config(small), Qwen3TTSOptions())


@pytest.fixture
def words(small, tmp_path, front):
    """A front over a folder that has a tokenizer of a few words."""
    vocab = {**SPECIAL, "Hello": 3, "there": 4, "slowly": 5, "?": 0}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="?"))
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(kind))
    return Qwen3TTSFront(tmp_path, front.config, front.options)


def rows(request):
    """Pairs of text id and codec id, None where text stands alone."""
    text, code = (request.arrays[name].tolist() for name in ("text", "code"))
    return [(t, None if c == 0 else c - 1) for t, c in zip(text, code, strict=True)]


def script(request):
    """What is spoken word by word, up to the padding."""
    ids = request.arrays["script"][0].tolist()
    assert ids[-1] == PAD
    return ids[: ids.index(PAD)]


ROLE = [(70, None), (71, None), (72, None)]


def test_the_whole_text_comes_before_the_sound(front):
    request = front.ids_request(TURN, voice="ann", language="english")
    head = [(PAD, THINK), (PAD, THINK_BOS), (PAD, ENGLISH), (PAD, THINK_EOS), (PAD, ANN)]
    body = [(3, C_PAD), (4, C_PAD), (5, C_PAD), (EOS, C_PAD), (PAD, C_BOS)]
    assert rows(request) == [*ROLE, *head, (BOS, C_PAD), *body]
    assert script(request) == []


def test_text_word_by_word_begins_in_the_prompt_and_goes_on_in_the_script(front):
    request = front.ids_request(TURN, voice="ann", language="auto", whole_text=False)
    head = [(PAD, NO_THINK), (PAD, THINK_BOS), (PAD, THINK_EOS), (PAD, ANN), (BOS, C_PAD)]
    assert rows(request) == [*ROLE, *head, (3, C_BOS)]
    assert script(request) == [4, 5, EOS]
    assert request.arrays["script"].dtype == np.int64


def test_an_instruction_comes_first(front):
    request = front.ids_request(TURN, voice="ann", instruct=[8, 9])
    assert rows(request)[:5] == [(8, None), (9, None), *ROLE]


@pytest.mark.parametrize(
    ("voice", "language", "spoken"),
    [
        ("bo", "auto", SICHUAN),
        ("bo", "Chinese", SICHUAN),
        ("bo", "english", ENGLISH),
        ("ann", "chinese", CHINESE),
        ("BO", None, SICHUAN),
    ],
)
def test_a_speaker_of_a_dialect_speaks_it_where_chinese_is_spoken(front, voice, language, spoken):
    request = front.ids_request(TURN, voice=voice, language=language)
    assert rows(request)[5] == (PAD, spoken)


def test_text_longer_than_the_script_is_refused(small):
    options = Qwen3TTSOptions(script=3)
    front = Qwen3TTSFront(small, read_config(small), options)
    assert script(front.ids_request(TURN[:4] + TURN[5:], voice="ann", whole_text=False)) == [5, EOS]
    with pytest.raises(RequestError, match="at most 2"):
        front.ids_request(TURN, voice="ann", whole_text=False)
    front.ids_request(TURN, voice="ann")


@pytest.mark.parametrize("voice", ["nobody", "", "/tmp/a.wav", None])
def test_a_voice_that_the_model_lacks_is_refused_and_never_replaced(front, voice):
    """TT-09, TT-11."""
    with pytest.raises(RequestError, match="one of: ann, bo") as caught:
        front.ids_request(TURN, voice=voice)
    assert caught.value.where == "voice"


def test_long_text_is_spoken_in_parts_of_whole_sentences(words, small):
    options = Qwen3TTSOptions(part_chars=19, default_voice="ann")
    front = Qwen3TTSFront(words.folder, read_config(small), options)
    requests = front.speech_requests("Hello there. Hello slowly. Hello.", language="english")
    said = [rows(request) for request in requests]
    assert said == [
        rows(front.speech_request(part, language="english"))
        for part in ("Hello there.", "Hello slowly.", "Hello.")
    ]
    assert front.traits()["default_voice"] == "ann"


def test_a_default_voice_speaks_where_none_is_named(small):
    front = Qwen3TTSFront(small, read_config(small), Qwen3TTSOptions(default_voice="Bo"))
    assert rows(front.ids_request(TURN))[7] == (PAD, BO)


@pytest.mark.parametrize(
    ("options", "where"),
    [({"language": "elvish"}, "language"), ({"speed": 2.0}, "speed"), ({"speed": -1}, "speed")],
)
def test_what_the_model_cannot_do_is_refused_by_name(words, options, where):
    """TT-09."""
    with pytest.raises(RequestError) as caught:
        words.speech_request("Hello", voice="ann", **options)
    assert caught.value.where == where


@pytest.mark.parametrize("text", ["a \ud800", "Hello<|im_end|>", "<|im_start|>user"])
def test_text_that_is_none_or_closes_its_turn_is_refused(words, text):
    with pytest.raises(RequestError, match="without the marks of a turn"):
        words.speech_request(text, voice="ann")


@pytest.mark.parametrize("text", ["", " ", "\n", None, 7])
def test_text_that_says_nothing_is_refused(words, text):
    """TT-09."""
    with pytest.raises(RequestError) as caught:
        words.speech_request(text, voice="ann")
    assert caught.value.where == "input"


def test_text_becomes_a_turn_and_an_instruction_a_turn_before_it(words):
    request = words.speech_request("Hello there", voice="ann", instructions="slowly")
    ids = [i for i, code in rows(request) if code is None]
    assert ids == [70, 75, 72, 5, 73, 72, 70, 71, 72]
    assert [i for i, code in rows(request) if code == C_PAD] == [BOS, 3, 4, EOS]


def test_settings_are_the_checkpoints_and_its_penalty_is_the_rule(front):
    request = front.ids_request(TURN, voice="ann")
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.repetition_penalty) == (0.9, 50, 1.0)
    assert request.settings["sampler_rules"] == {"repetition": True}
    given = SamplingSettings(**{**front.default_sampling(), "seed": 3})
    again = front.ids_request(TURN, voice="ann", sampling=given)
    assert again.settings["sampler_rules"] == {"repetition": True}
    own = SamplingSettings(repetition_penalty=1.2)
    other = front.ids_request(TURN, voice="ann", sampling=own)
    assert other.settings["sampler_rules"] == {"repetition": False}
    assert other.sampling.repetition_penalty == 1.2


def test_an_answer_without_a_limit_has_one_that_follows_from_the_text(front):
    """TT-01."""
    assert front.ids_request(TURN, voice="ann").max_new_tokens == 125 + 3 * 25
    assert front.ids_request(TURN, voice="ann", max_new_tokens=9).max_new_tokens == 9
    long = [*TURN[:3], *[3] * 60, *TURN[6:]]
    request = front.ids_request(long, voice="ann")
    assert request.max_new_tokens + len(rows(request)) == front.config.max_context


def test_traits_name_voices_languages_and_the_rate(front):
    traits = front.traits()
    assert traits["voices"] == ["ann", "bo"]
    assert traits["languages"] == ["auto", "chinese", "english", "sichuan_dialect"]
    assert (traits["sample_rate"], traits["default_language"]) == (24000, "auto")


def test_a_folder_without_a_tokenizer_says_so_when_text_comes(front):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        front.speech_request("Hello", voice="ann")


@pytest.fixture
def base(golden):
    folder = golden / "qwen3_tts-tiny-0b6-base"
    return Qwen3TTSFront(folder, read_config(folder), Qwen3TTSOptions())


VECTOR, FRAMES = np.ones(64, np.float32), np.full((3, 16), 5)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("heard", "where"),
    [
        (None, "reference"),
        (HeardVoice(speaker=VECTOR[:9]), "heard.speaker"),
        (HeardVoice(speaker=VECTOR * np.nan), "heard.speaker"),
        (HeardVoice(speaker=VECTOR, codes=FRAMES), "heard.text"),
        (HeardVoice(speaker=VECTOR, codes=FRAMES[:0], text="Hello"), "heard.codes"),
        (HeardVoice(speaker=VECTOR, codes=FRAMES + 60, text="Hello"), "heard.codes"),
        (HeardVoice(speaker=VECTOR, codes=FRAMES[:, 1:], text="Hello"), "heard.codes"),
    ],
)
def test_a_base_model_refuses_a_voice_that_does_not_fit(base, heard, where):
    """TT-10: sound without its text, too."""
    with pytest.raises(RequestError) as caught:
        base.ids_request(TURN, heard=heard)
    assert caught.value.where == where


def test_a_model_of_named_voices_refuses_one_to_imitate(front):
    """TT-11"""
    with pytest.raises(RequestError, match="use a Base checkpoint"):
        front.ids_request(TURN, voice="ann", heard=HeardVoice(speaker=VECTOR))


@pytest.mark.shared
def test_a_size_that_does_not_obey_refuses_instructions(golden):
    folder = golden / "qwen3_tts-tiny-0b6-custom_voice"
    front = Qwen3TTSFront(folder, read_config(folder), Qwen3TTSOptions())
    with pytest.raises(RequestError, match="speaks as it does"):
        front.speech_request("Hello", voice="serena", instructions="slowly")
