"""What a person gives the front, and the request or the error that comes of it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from mstar_whisper.config import read_config
from mstar_whisper.front import WhisperFront

from mstar_core.errors import CheckpointError, RequestError


@pytest.fixture
def english(golden):
    folder = golden / "whisper-tiny-en"
    return WhisperFront(folder, read_config(folder), None)


@pytest.fixture
def multilingual(golden):
    folder = golden / "whisper-tiny-multilingual"
    return WhisperFront(folder, read_config(folder), None)


@pytest.fixture
def real(real_weights):
    return WhisperFront(real_weights, read_config(real_weights), None)


SOUND = np.sin(np.arange(8000) / 10).astype(np.float32)


def prompt_of(request):
    return request.arrays["ids"].tolist()


def test_an_english_prompt_is_the_start_and_no_timestamps(english):
    """WH-09: nothing else is in it."""
    request = english.audio_request(SOUND, 16000)
    assert prompt_of(request) == [301, 308]
    assert request.arrays["ids"].dtype == np.int64
    assert request.arrays["mel"].shape == (1, 80, 100)
    assert request.stop_ids == {300}
    assert request.max_new_tokens == 62
    assert request.sampling.temperature == 0


def test_timestamps_leave_their_id_out_and_switch_the_rule_on(english):
    request = english.audio_request(SOUND, 16000, timestamps=True)
    assert prompt_of(request) == [301]
    assert request.settings["sampler_rules"] == {"timestamps": True}
    without = english.audio_request(SOUND, 16000)
    assert without.settings["sampler_rules"] == {"timestamps": False}


def test_a_multilingual_prompt_names_language_and_task(multilingual):
    ask = multilingual.audio_request
    assert prompt_of(ask(SOUND, 16000, language="de", task="translate")) == [301, 304, 306, 311]
    assert prompt_of(ask(SOUND, 16000, language="DE")) == [301, 304, 307, 311]
    assert prompt_of(ask(SOUND, 16000, language="zh", timestamps=True)) == [301, 303, 307]
    assert ask(SOUND, 16000, language="de").arrays["mel"].shape == (1, 128, 100)


@pytest.mark.parametrize("language", [None, "", "xx", "German"])
def test_a_language_that_is_missing_or_unknown_is_refused_with_the_known_ones(
    multilingual, language
):
    """WH-08: never English by default."""
    with pytest.raises(RequestError, match="de, en, es, zh") as error:
        multilingual.audio_request(SOUND, 16000, language=language)
    assert error.value.where == "language"


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"language": 7}, "text"),
        ({"timestamps": 1}, "true or false"),
        ({"prompt": b"x"}, "text"),
        ({"langauge": "de"}, "write 'language'"),
    ],
)
def test_a_wish_of_another_type_or_name_is_refused(multilingual, wish, says):
    with pytest.raises(RequestError, match=says) as error:
        multilingual.audio_request(SOUND, 16000, **wish)
    assert error.value.where == next(iter(wish))


def test_a_misspelt_task_gets_the_nearest(multilingual):
    with pytest.raises(RequestError, match="write 'transcribe'"):
        multilingual.audio_request(SOUND, 16000, language="de", task="transcript")


def test_the_default_language_is_used_where_a_request_names_none(golden):
    folder = golden / "whisper-tiny-multilingual"
    front = WhisperFront(folder, read_config(folder), "es")
    assert prompt_of(front.audio_request(SOUND, 16000)) == [301, 305, 307, 311]
    assert prompt_of(front.audio_request(SOUND, 16000, language="de"))[1] == 304


@pytest.mark.parametrize("wish", [{"language": "de"}, {"task": "translate"}])
def test_an_english_model_takes_no_other_language_and_no_other_task(english, wish):
    """WH-08."""
    with pytest.raises(RequestError, match="English"):
        english.audio_request(SOUND, 16000, **wish)


@pytest.mark.parametrize("wish", [{"language": "en"}, {"task": "transcribe"}])
def test_what_an_english_model_does_anyway_may_be_asked_of_it(english, wish):
    want = prompt_of(english.audio_request(SOUND, 16000))
    assert prompt_of(english.audio_request(SOUND, 16000, **wish)) == want


def test_a_front_tells_its_window_and_its_languages(english, multilingual):
    assert english.traits()["languages"] == ["en"]
    assert english.traits()["default_language"] == "en"
    assert "max_audio_seconds" not in english.traits()
    assert multilingual.traits()["tasks"] == ["transcribe", "translate"]
    assert "de" in multilingual.traits()["languages"]


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_sound_as_long_as_the_window_is_taken_and_longer_is_refused_with_the_limit(english, rate):
    """WH-04."""
    english.audio_request(np.zeros(rate, np.float32), rate)
    with pytest.raises(RequestError, match="at most 1 s"):
        english.audio_request(np.zeros(rate + 1, np.float32), rate)


@pytest.mark.parametrize("count", [1, 160, 1584])
def test_very_short_sound_is_taken(english, count):
    """WH-17."""
    mel = english.audio_request(SOUND[:count], 16000).arrays["mel"]
    assert mel.shape == (1, 80, 100)
    assert np.isfinite(mel).all()


@pytest.mark.parametrize(
    ("samples", "rate", "says"),
    [
        (np.zeros(0, np.float32), 16000, "zero samples"),
        (np.full(10, np.inf, np.float32), 16000, "NaN or infinite"),
        (SOUND, 0, "samples per second"),
        (SOUND, 16000.0, "samples per second"),
    ],
)
def test_sound_that_cannot_be_heard_is_refused(english, samples, rate, says):
    """WH-17."""
    with pytest.raises(RequestError, match=says):
        english.audio_request(samples, rate)


def test_channels_and_rate_do_not_change_what_is_heard(english):
    time = np.arange(44100) / 44100
    at_44k = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    at_16k = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000).astype(np.float32)
    got = english.audio_request(np.stack([at_44k, at_44k], 1), 44100).arrays["mel"][0]
    want = english.audio_request(at_16k, 16000).arrays["mel"][0]
    assert np.abs(got - want)[:, 5:90].max() < 0.02


@pytest.mark.parametrize(
    ("asked", "given"), [(None, 62), (5, 5), (np.int64(5), 5), (62, 62), (1000, 62)]
)
def test_new_tokens_never_pass_the_decoders_positions(english, asked, given):
    """WH-10."""
    assert english.audio_request(SOUND, 16000, max_new_tokens=asked).max_new_tokens == given


def test_sampling_that_is_none_of_ours_is_refused(english):
    with pytest.raises(RequestError, match="SamplingSettings"):
        english.audio_request(SOUND, 16000, sampling={})


@pytest.mark.parametrize("asked", [0, -1, True, 2.0])
def test_a_number_of_new_tokens_that_cannot_be_is_refused(english, asked):
    with pytest.raises(RequestError, match="max_new_tokens"):
        english.audio_request(SOUND, 16000, max_new_tokens=asked)


def test_earlier_text_comes_after_its_own_mark(real):
    """WH-09."""
    ids = prompt_of(real.audio_request(SOUND, 16000, prompt="  Glossary: Dashwood "))
    assert ids[0] == 50360
    assert ids[-2:] == [50257, 50362]
    assert real.decode(ids) == " Glossary: Dashwood"
    assert prompt_of(real.audio_request(SOUND, 16000, prompt=" ")) == [50257, 50362]


@pytest.mark.parametrize("words", [1, 223, 224, 300, 5000])
def test_of_long_earlier_text_the_end_is_kept(real, words):
    """WH-10."""
    request = real.audio_request(
        SOUND, 16000, prompt="one " * (words - 1) + "two", max_new_tokens=999
    )
    kept = min(words, 223)
    assert len(prompt_of(request)) == kept + 3
    assert prompt_of(request)[kept] == 734  # " two"
    assert request.max_new_tokens == 448 - kept - 3


def test_a_control_token_in_earlier_text_is_refused(real):
    with pytest.raises(RequestError, match="control tokens"):
        real.audio_request(SOUND, 16000, prompt="a <|endoftext|> b")


def test_text_leaves_out_control_ids_and_timestamps(real):
    assert real.decode([50257, 50363, 23748, 995, 50463, 50256]) == " hello world"


def test_a_checkpoint_without_tokenizer_says_so_when_text_is_wanted(english):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        english.decode([1, 2])


def edited(golden, tmp_path, file, **changes):
    folder = tmp_path / "checkpoint"
    shutil.copytree(golden / "whisper-tiny-multilingual", folder)
    folder.chmod(0o755)
    path = folder / file
    values = json.loads(path.read_text()) if path.exists() else {}
    if path.exists():
        path.chmod(0o644)
    path.write_text(json.dumps(values | changes))
    return folder


def test_mel_bins_at_odds_with_the_extractor_fail_with_both_numbers(golden, tmp_path):
    """WH-07."""
    folder = edited(golden, tmp_path, "preprocessor_config.json", feature_size=80)
    with pytest.raises(CheckpointError) as error:
        read_config(folder)
    assert "80" in str(error.value)
    assert "128" in str(error.value)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"model_type": "llama"}),
        ("config.json", {"d_model": "64"}),
        ("config.json", {"decoder_attention_heads": 5}),
        ("config.json", {"dtype": "int8"}),
        ("config.json", {"num_mel_bins": True}),
        ("config.json", {"median_filter_width": 6}),
        ("generation_config.json", {"eos_token_id": 900}),
        ("generation_config.json", {"no_timestamps_token_id": None}),
        ("generation_config.json", {"lang_to_id": {"<|de|>": "x"}}),
        ("generation_config.json", {"is_multilingual": False}),
        ("generation_config.json", {"suppress_tokens": [1.5]}),
        ("generation_config.json", {"alignment_heads": []}),
        ("generation_config.json", {"alignment_heads": [[9, 0]]}),
        ("generation_config.json", {"alignment_heads": [[0, 0, 0]]}),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_its_file(golden, tmp_path, file, changes):
    with pytest.raises(CheckpointError) as error:
        read_config(edited(golden, tmp_path, file, **changes))
    assert file in error.value.where
    assert next(iter(changes)) in error.value.where


def test_without_heads_for_alignment_those_of_the_upper_layers_are_taken(golden, tmp_path):
    named = read_config(golden / "whisper-tiny-multilingual")
    assert named.alignment_heads
    folder = edited(golden, tmp_path, "generation_config.json", alignment_heads=None)
    config = read_config(folder)
    layers, heads = config.decoder_layers, config.decoder_heads
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    assert list(config.alignment_heads) == [pair for pair in every if pair[0] >= layers // 2]


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_config(tmp_path)
