"""``mstar-core speak`` with a tiny checkpoint."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from mstar_core.cli import main, progress
from mstar_core.engine import Engine

GREEDY = {"do_sample": False, "repetition_penalty": 1.05, "max_new_tokens": 14}
FRAME, RATE = 1920, 24_000
NAMED = {300: "\n", 301: "assistant", 302: "<|im_start|>", 303: "<|im_end|>"}


@pytest.fixture
def checkpoint(voice):
    """Its folder, with a tokenizer of made-up words, and what it says without sampling."""
    folder = voice.folder
    (folder / "generation_config.json").write_text(json.dumps(GREEDY))
    vocab = {NAMED.get(i, f"w{i}"): i for i in range(320)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="w0"))
    tokenizer.add_special_tokens(list(NAMED.values()))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return voice


@pytest.fixture
def speak(checkpoint, capsys, tmp_path, monkeypatch):
    """``speak(*words)``: exit code, stdout and stderr of a run."""
    monkeypatch.chdir(tmp_path)
    model = f"model: {{name: qwen3-tts, path: '{checkpoint.folder}', dtype: fp32}}\n"
    (tmp_path / "tts.yaml").write_text(model + "engine: {graphs: off}\n")

    def run(*words):
        capsys.readouterr()
        code = main(["speak", "tts.yaml", *map(str, words)])
        return code, *capsys.readouterr()

    yield run
    progress.log.setLevel("NOTSET")


@pytest.mark.shared
@pytest.mark.parametrize("text", ["w1 w2 w3", "w165 w119 w244 w268"])
def test_the_sound_of_the_engine_is_in_the_file(speak, text):
    """TT-01: where the cap of its frames ends it, that is said."""
    words = ("--voice", "serena", "--language", "english")
    code, out, err = speak("--text", text, "--out", "a.wav", "--json", *words)
    assert code == 0, err
    with Engine.open("tts.yaml") as engine:
        request = engine.front.speech_request(text, voice="serena", language="english")
        (result,) = engine.run([request])
    told, sound = json.loads(out), result.items["sound"].ravel()
    assert len(sound) >= FRAME
    assert (told["seconds"], told["finish_reason"]) == (len(sound) / RATE, result.finish_reason)
    assert ("was cut off" in err) == (result.finish_reason == "length")
    samples, rate = soundfile.read("a.wav", dtype="float32")
    assert (rate, len(samples)) == (RATE, len(sound))
    assert np.abs(samples - sound.clip(-1, 1)).max() < 1e-4


@pytest.mark.shared
def test_parts_of_long_text_are_one_sound_of_all_their_samples(speak):
    """Each sounds as it does alone, but within 5 ms of a joint."""
    said = ["w1 w2", "w3 w4 w5", "w6"]
    few = ("--set", "model.options.part_chars=10", "--voice", "dylan", "--language", "chinese")
    assert speak("--text", "\n\n".join(said), "--out", "all.wav", *few)[0] == 0
    whole, _ = soundfile.read("all.wav", dtype="float32")
    alone = []
    for part in said:
        assert speak("--text", part, "--out", "one.wav", *few)[0] == 0
        alone.append(soundfile.read("one.wav", dtype="float32")[0])
    assert len(whole) == sum(map(len, alone))
    joints = np.cumsum([len(part) for part in alone])[:-1]
    near = np.abs(np.arange(len(whole))[:, None] - joints).min(1) <= 120
    assert np.abs(whole - np.concatenate(alone))[~near].max() < 1e-4
    steps = np.abs(np.diff(whole))
    for joint in joints:
        around = np.concatenate([steps[joint - 240 : joint - 1], steps[joint : joint + 240]])
        assert steps[joint - 1] <= 3 * around.max()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of: dylan, serena"),
        (("--voice", "nobody"), "one of: dylan, serena"),
        (("--voice", "serena", "--language", "elvish"), "beijing_dialect, chinese, english"),
        (("--voice", "serena", "--instructions", "w1"), "this size speaks as it does"),
        (("--voice", "serena", "--speed", "2"), "the model speaks at its own pace"),
    ],
    ids=str,
)
def test_a_wish_that_the_model_cannot_fulfil_is_refused_before_weights(speak, words, said):
    """TT-09, TT-11."""
    code, _, err = speak("--text", "w1", "--out", "a.wav", *words)
    assert code == 1
    assert said in err


@pytest.mark.shared
def test_voices_and_languages_are_listed(speak):
    code, out, _ = speak("--voices", "--json")
    assert code == 0
    assert json.loads(out) == {
        "voices": ["dylan", "serena"],
        "default_voice": None,
        "languages": ["auto", "beijing_dialect", "chinese", "english"],
        "default_language": "auto",
        "sample_rate": 24_000,
    }
