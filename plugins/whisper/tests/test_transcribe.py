"""``mstar-core transcribe``: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from mstar_core.audio import read_audio
from mstar_core.cli import main
from mstar_core.cli.outputs import Written

pytestmark = pytest.mark.shared


@pytest.fixture
def config(golden, tmp_path):
    """A configuration of the tiny English checkpoint, with a tokenizer of made-up words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for file in (golden / "whisper-tiny-en").glob("*"):
        shutil.copyfile(file, folder / file.name)
    vocab = {f"w{i}": i for i in range(300)}
    Tokenizer(WordLevel(vocab, unk_token="w0")).save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    file = tmp_path / "tiny.yaml"
    file.write_text(f"model: {{name: whisper, path: '{folder}', dtype: fp32}}\n")
    return str(file)


@pytest.fixture
def sounds(tmp_path):
    """Sound files by name: two that are heard, three that cannot be."""
    tone = 0.4 * np.sin(np.arange(24000) / 20)
    files = {n: str(tmp_path / n) for n in ("a.wav", "b.flac", "text.wav", "long.wav", "no.wav")}
    soundfile.write(files["a.wav"], tone[:16000], 48000)
    soundfile.write(files["b.flac"], np.stack([tone, tone], 1), 24000)
    soundfile.write(files["long.wav"], tone, 16000)
    (tmp_path / "text.wav").write_text("not sound " * 30)
    return files


def test_one_file_prints_its_text_alone(config, sounds, capsys):
    assert main(["transcribe", config, sounds["a.wav"]]) == 0
    out = capsys.readouterr().out
    assert out.startswith("w")
    assert out.count("\n") == 1
    assert "a.wav" not in out


def test_several_files_print_a_line_each_with_their_names(config, sounds, capsys):
    assert main(["transcribe", config, sounds["a.wav"], sounds["b.flac"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [sounds["a.wav"], sounds["b.flac"]]


def test_a_file_that_cannot_be_heard_does_not_end_the_others(config, sounds, capsys):
    """WH-14."""
    asked = [sounds[name] for name in ("text.wav", "a.wav", "no.wav", "b.flac")]
    assert main(["transcribe", config, *asked]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    for name, says in (
        ("text.wav", "a whole wav, flac, ogg or mp3"),
        ("no.wav", "no such file"),
    ):
        told = next(part for part in err.split("Error: ") if part.startswith(sounds[name]))
        assert says in told


@pytest.mark.parametrize("flag", [["--format", "json"], ["--json"]])
def test_json_is_one_object_a_line(config, sounds, capsys, flag):
    asked = [sounds["a.wav"], sounds["no.wav"]]
    assert main(["transcribe", config, *asked, *flag]) == 1
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["file"] == sounds["a.wav"]
    assert good["seconds"] == pytest.approx(1 / 3, abs=1e-3)
    assert good["text"].split()[0].startswith("w")
    assert bad["error"]["got"] == "no such file"


def test_texts_can_be_written_into_a_folder(config, sounds, tmp_path, capsys):
    target = tmp_path / "out" / "texts"
    asked = [sounds["a.wav"], sounds["b.flac"], "--output-dir", str(target)]
    assert main(["transcribe", config, *asked]) == 0
    assert capsys.readouterr().out == ""
    assert sorted(file.name for file in target.glob("*.txt")) == ["a.wav.txt", "b.flac.txt"]
    assert (target / "a.wav.txt").read_text().startswith("w")


def test_files_that_would_be_written_over_each_other_are_refused_before_any_work(tmp_path, capsys):
    asked = ["a/x.wav", "b/x.wav", "--output-dir", str(tmp_path / "out")]
    assert main(["transcribe", "nowhere.yaml", *asked]) == 2
    err = capsys.readouterr().err
    assert "x.wav.txt for a/x.wav and for b/x.wav" in err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_takes_no_files_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "file").touch()
    asked = ["x.wav", "--output-dir", str(tmp_path / "file" / "out")]
    assert main(["transcribe", "nowhere.yaml", *asked]) == 2
    assert "a folder that can be written to" in capsys.readouterr().err


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_a_file_name_that_is_no_utf_8_is_heard_and_printed_with_backslashes(
    config, sounds, tmp_path, flag
):
    name = bytes(tmp_path) + b"/\xff.wav"
    shutil.copyfile(sounds["a.wav"], name)
    command = [sys.executable, "-m", "mstar_core", "transcribe", config, name, name, *flag]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    if flag:
        assert json.loads(first)["file"] == f"{tmp_path}/\udcff.wav"
    else:
        assert first.startswith(f"{tmp_path}/\\udcff.wav: w")


def test_a_checkpoint_of_another_model_is_named_as_one(sounds, capsys):
    pytest.importorskip("mstar_qwen35", reason="no other model is installed")
    asked = ["--set", "model.path=package:mstar_qwen35/tiny"]
    assert main(["transcribe", "whisper.yaml", sounds["a.wav"], *asked]) == 1
    err = capsys.readouterr().err
    assert "a checkpoint of another model, 'qwen3_5'" in err
    assert "name a config of that model" in err


def test_a_language_for_an_english_model_is_an_error_of_each_file(config, sounds, capsys):
    """WH-08."""
    assert main(["transcribe", config, sounds["a.wav"], "--language", "de"]) == 1
    assert "language" in capsys.readouterr().err


def test_a_format_that_is_not_there_is_an_error_of_the_command_line(config, sounds, capsys):
    assert main(["transcribe", config, sounds["a.wav"], "--format", "xml"]) == 2
    assert "text" in capsys.readouterr().err


def test_a_model_that_takes_no_sound_is_refused_before_any_file(sounds, capsys):
    pytest.importorskip("mstar_qwen35", reason="no model for text is installed")
    assert main(["transcribe", "qwen35_tiny", sounds["a.wav"]]) == 1
    assert "takes sound" in capsys.readouterr().err


@pytest.fixture
def resumed(monkeypatch, tmp_path, capsys):
    """``resumed(config, path, windows, *flags)``: outputs of a run, and of one that was broken off.

    That one stops after so many windows, and a third goes on where it stood.
    """

    def run(config, path, windows, *flags):
        def hear(folder):
            return main(["transcribe", config, path, *flags, "--output-dir", str(folder)])

        taken, add = [], Written.add

        def interrupted(self, job, segments):
            add(self, job, segments)
            taken.extend(segments[:1])
            if len(taken) == windows:
                raise KeyboardInterrupt

        whole, parts = tmp_path / "whole", tmp_path / "parts"
        assert hear(whole) == 0
        with monkeypatch.context() as patched:
            patched.setattr(Written, "add", interrupted)
            assert hear(parts) == 130
        assert list(parts.glob("*.partial.*"))
        assert hear(parts) == 0
        capsys.readouterr()
        (name,) = [file.name for file in whole.glob("[!.]*")]
        assert [file.name for file in parts.glob("[!.]*")] == [name]
        return [json.loads((folder / name).read_text()) for folder in (whole, parts)]

    return run


def said(told):
    """What was said, and when; log-probabilities differ by rounding with what ran beside."""
    return [(segment["start"], segment["end"], segment["text"]) for segment in told["segments"]]


@pytest.mark.parametrize("flags", [[], ["--batched"]])
def test_a_run_that_goes_on_where_one_stopped_says_the_same(config, resumed, tmp_path, flags):
    """Windows of one second, each told what was said before it."""
    samples = np.random.default_rng(1).normal(0, 0.1, 3 * 16_000)
    path = str(tmp_path / "noise.wav")
    soundfile.write(path, samples, 16_000)
    told, parts = resumed(config, path, 1, "--format", "verbose_json", *flags)
    assert said(parts) == said(told)
    assert told["language"] == "en"
    times = [time for segment in told["segments"] for time in (segment["start"], segment["end"])]
    assert times == sorted(times)
    assert times[-1] <= told["duration"] == 3


@pytest.mark.weights
def test_two_minutes_of_recordings_are_heard_and_gone_on_with(
    real_weights, speech, resumed, tmp_path
):
    """WH-02, WH-04, WH-12: published weights, and a pause of a second between the recordings."""
    names = (
        "librivox_austen_0870",
        "espeak_weather",
        "librivox_austen_0920",
        "librivox_austen_0880",
    )
    sounds = [read_audio(speech / f"{name}.wav").samples_T for name in names]
    pause = np.zeros(16_000, np.float32)
    round_ = np.concatenate([part for sound in sounds for part in (sound, pause)])
    samples = np.tile(round_, -(-120 * 16_000 // len(round_)))
    path, config = str(tmp_path / "long.flac"), tmp_path / "real.yaml"
    soundfile.write(path, samples, 16_000)
    config.write_text(f"model: {{name: whisper, path: '{real_weights}', dtype: fp32}}\n")
    told, parts = resumed(str(config), path, 2, "--format", "verbose_json", "--batched")
    assert said(parts) == said(told)
    rounds = len(samples) // len(round_)
    for word in ("prudently", "weather", "respectable", "young man"):
        assert told["text"].lower().count(word) == rounds, word
    assert told["segments"][-1]["end"] == pytest.approx(len(samples) / 16_000 - 1, abs=1.2)


def test_help_imports_no_torch():
    code = (
        "import sys; from mstar_core.cli import main; main(['transcribe', '--help']);"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--output-dir" in done.stdout
