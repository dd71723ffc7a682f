"""``mstar-core speak`` on echo, which says a tone for each byte."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import soundfile

from mstar_core.cli import main, progress
from mstar_core.echo.front import EchoFront
from mstar_core.echo.tones import RATE, tones
from mstar_core.resample import resample
from mstar_core.testing.sound import encoded, tone


@pytest.fixture
def speak(capsys, tmp_path, monkeypatch):
    """``speak(*words)``: exit code, stdout and stderr of a run in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words, config="echo"):
        capsys.readouterr()
        code = main(["speak", config, *map(str, words)])
        return code, *capsys.readouterr()

    yield run
    progress.log.setLevel(logging.NOTSET)


def test_text_is_spoken_into_a_file(speak, tmp_path):
    code, out, err = speak("--text", "hällo", "--out", "a.wav")
    assert (code, out) == (0, "")
    assert "a.wav: 0.06 s of sound in" in err
    assert "times real time" in err
    samples, rate = soundfile.read("a.wav", dtype="float32")
    assert rate == RATE
    assert np.abs(samples - tones("hällo".encode())).max() < 1e-4
    assert os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.parametrize("style", ["pcm", "wav", "flac", "mp3", "opus"])
@pytest.mark.parametrize("new_rate", [None, 16_000])
def test_the_name_of_the_file_says_how_it_is_written(speak, style, new_rate):
    rate = ("--sample-rate", new_rate) if new_rate else ()
    assert speak("--text", "a" * 50, "--out", f"a.{style}", *rate)[0] == 0
    want = resample(tones(b"a" * 50), RATE, new_rate or RATE)
    if style == "pcm":
        samples = np.fromfile("a.pcm", "<i2") / 32768
    else:
        samples, got = soundfile.read(f"a.{style}")
        assert got == (new_rate or RATE)
    assert len(samples) == len(want)
    if style in ("pcm", "wav", "flac"):
        assert np.abs(samples - want).max() < 2e-4


def test_the_text_is_a_file_or_stdin_too(speak, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("ab")
    assert speak("--text", "@in.txt", "--out", "a.flac")[0] == 0
    assert soundfile.info("a.flac").frames == 2 * RATE // 100
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc"))
    assert speak("--text", "-", "--out", "b.flac")[0] == 0
    assert soundfile.info("b.flac").frames == 3 * RATE // 100
    code, _, err = speak("--text", "@nowhere.txt", "--out", "c.flac")
    assert code == 1
    assert "--text" in err
    assert "nowhere.txt" in err


def test_long_text_is_spoken_in_parts_and_is_one_sound(speak, monkeypatch):
    """Samples are those of the parts together, and no step is louder than what is around it."""
    monkeypatch.setattr(EchoFront, "speech_chars", 30)
    text = "This is a sentence. " * 24
    code, out, _ = speak("--text", text, "--out", "a.wav", "--json")
    told = json.loads(out)
    assert (code, told["parts"], told["finish_reason"]) == (0, 24, "stop")
    assert told["seconds"] == 24 * 19 / 100
    samples, _ = soundfile.read("a.wav")
    assert len(samples) == 24 * 19 * RATE // 100
    steps = np.abs(np.diff(samples))
    size = 19 * RATE // 100
    for joint in range(size, len(samples), size):
        near = np.concatenate([steps[joint - 240 : joint - 1], steps[joint : joint + 240]])
        assert steps[joint - 1] <= 3 * near.max()


def test_voices_are_listed_without_weights(speak):
    code, out, err = speak("--voices")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "voices            tone"
    code, out, _ = speak("--voices", "--json")
    assert json.loads(out) == {
        "voices": ["tone"],
        "default_voice": None,
        "languages": [],
        "default_language": None,
        "sample_rate": RATE,
    }


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--out", "a.wav"), 2, "no --text"),
        (("--text", "a"), 2, "no --out"),
        (("--text", "a", "--out", "a.xyz"), 2, ".pcm, .wav, .flac, .mp3, .opus"),
        (("--text", "a", "--out", "a"), 2, "give --format"),
        (("--text", "a", "--out", "no/folder/a.wav"), 2, "No such file"),
        (("--text", "a", "--out", "."), 2, "give --format"),
        (("--text", "a", "--out", "/tmp", "--format", "wav"), 2, "Is a directory"),
        (("--text", "a", "--out", "a.opus", "--sample-rate", "44100"), 2, "what opus knows"),
        (("--text", "a", "--out", "a.wav", "--sample-rate", "10"), 1, "from 1000 to 768000"),
        (("--text", "a", "--out", "a.wav", "--sample-rate", "0"), 2, "whole number"),
        (("--text", "a", "--out", "-", "--json"), 2, "one thing on stdout"),
        (("--text", "a", "--out", "a.wav", "--voice", "nobody"), 1, "got   'nobody'"),
        (("--text", "a", "--out", "a.wav", "--language", "german"), 2, "leave --language out"),
        (("--text", "a", "--out", "a.wav", "--speed", "-1"), 2, "above 0"),
        (("--text", "a", "--out", "a.wav", "--reference", "b.wav"), 2, "leave --reference out"),
        (("--text", "a", "--out", "a.wav", "--reference-text", "b"), 2, "add --reference"),
        (("--text", "a", "--out", "a.wav", "--speaker-only"), 2, "add --reference"),
        (("--text", "", "--out", "a.wav"), 1, "want  "),
    ],
    ids=str,
)
def test_what_cannot_be_spoken_is_said_and_no_file_is_left(speak, tmp_path, words, code, said):
    found, out, err = speak(*words)
    assert (found, out) == (code, "")
    assert said in err
    assert os.listdir(tmp_path) == []


def test_a_model_that_does_not_speak_is_refused(speak):
    code, _, err = speak("--text", "a", "--out", "a.wav", config="qwen35_tiny")
    assert code == 1
    assert "want  a model that speaks" in err


def test_a_model_that_fails_leaves_no_file(speak, tmp_path):
    faults = ("--set", "model.options.faults=true")
    code, _, err = speak("--text", "!raise@3 abcdefg", "--out", "a.wav", *faults)
    assert code == 1
    assert "\nError: request " in err
    assert os.listdir(tmp_path) == []


def test_a_recording_of_a_voice_is_given_to_the_model(speak, tmp_path, monkeypatch):
    """TT-14: as it was sampled."""
    heard = {}

    def imitate(self, text, *, reference, reference_rate, **options):
        heard.update(options, samples=reference, rate=reference_rate)
        return spoken(self, text, voice=options["voice"])

    spoken = EchoFront.speech_request
    monkeypatch.setattr(EchoFront, "speech_request", imitate)
    monkeypatch.setattr(EchoFront, "speech_options", lambda self: frozenset({"reference"}))
    (tmp_path / "b.flac").write_bytes(encoded(tone(0.5, 16_000), 16_000, "FLAC"))
    wishes = ("--reference", "b.flac", "--reference-text", "la la", "--speaker-only")
    assert speak("--text", "abc", "--out", "a.wav", *wishes)[0] == 0
    assert (heard["rate"], len(heard["samples"])) == (16_000, 8_000)
    assert (heard["reference_text"], heard["speaker_only"]) == ("la la", True)
    code, _, err = speak("--text", "abc", "--out", "c.wav", "--reference", "nowhere.wav")
    assert code == 1
    assert "nowhere.wav" in err


def test_speech_that_is_cut_off_is_said_to_be(speak):
    limited = ("--set", "limits.max_new_tokens=3")
    code, _, err = speak("--text", "abc", "--out", "a.wav", *limited)
    assert code == 1
    assert "max_new_tokens" in err


def run(*words, **options):
    command = [sys.executable, "-m", "mstar_core", "speak", "echo", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_sound_comes_to_stdout_while_it_is_made():
    """The first piece is read while the model is far from its end."""
    slow = ("--set", "model.options.faults=true")
    with run(
        "--text", "!delay=0.05 " + "x" * 40, "--out", "-", "--format", "pcm", *slow
    ) as process:
        first = process.stdout.read(480)
        at = time.monotonic()
        rest = process.stdout.read()
        assert time.monotonic() - at > 0.5
        assert process.wait() == 0
        assert b"stdout: 0.52 s of sound" in process.stderr.read()
    want = tones(b"!delay=0.05 " + b"x" * 40)
    assert np.abs(np.frombuffer(first + rest, "<i2") / 32767 - want).max() < 1e-4


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_leaves_nothing(tmp_path):
    slow = ("--set", "model.options.faults=true")
    words = ("--text", "!delay=0.1 " + "x" * 300, "--out", "a.wav", *slow)
    with run(*words, cwd=tmp_path) as process:
        end = time.monotonic() + 60
        while not any(file.stat().st_size for file in tmp_path.iterdir()):
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err.decode()
    assert os.listdir(tmp_path) == []
