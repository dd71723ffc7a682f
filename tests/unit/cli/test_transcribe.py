"""``mstar-core transcribe`` on echo, which says of every 30 seconds how long they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mstar_core.cli import main, progress
from mstar_core.cli.journal import NAME
from mstar_core.cli.outputs import Printed
from mstar_core.testing.sound import encoded, silence, tone

WINDOW = "30.00 s of sound"
QUIET = ("--log-level", "warning")
"""No progress on stderr, however slow the machine is."""


@pytest.fixture
def sound(tmp_path):
    """``sound(name, seconds)``: a file of silence."""

    def make(name, seconds=1.0):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if seconds % 10 == 0:
            path.write_bytes(silence(seconds, 4_000, "FLAC"))
        else:
            samples = np.zeros(round(seconds * 4_000), np.float32)
            path.write_bytes(encoded(samples, 4_000, "FLAC"))
        return str(path)

    return make


@pytest.fixture
def hear(capsys):
    """``hear(*words)``: exit code, stdout and stderr of a run."""

    def run(*words):
        capsys.readouterr()
        code = main(["transcribe", "echo", *map(str, words), *QUIET])
        return code, *capsys.readouterr()

    return run


def test_sound_of_any_length_is_heard_window_by_window(sound, hear):
    """WH-04."""
    code, out, _ = hear(sound("a.flac", 95))
    assert (code, out) == (0, f"{WINDOW} {WINDOW} {WINDOW} 5.00 s of sound\n")


def test_a_folder_is_its_sound_files_by_content_and_in_order(sound, hear, tmp_path):
    for name in ("in/b/c.flac", "in/a.mp3", "in/.hidden.flac", "in/.git/x.flac"):
        sound(name)
    (tmp_path / "in" / "readme.wav").write_text("text")
    (tmp_path / "in" / "utf16.txt").write_bytes("text".encode("utf-16"))
    code, out, err = hear(tmp_path / "in")
    assert (code, err) == (0, "")
    names = [line.partition(": ")[0] for line in out.splitlines()]
    assert names == [str(tmp_path / "in" / "a.mp3"), str(tmp_path / "in" / "b" / "c.flac")]


def test_a_folders_outputs_lie_as_its_files_do(sound, hear, tmp_path):
    sound("in/b/c.flac")
    assert hear(tmp_path / "in", "--output-dir", tmp_path / "out", "--format", "srt")[0] == 0
    text = (tmp_path / "out" / "b" / "c.flac.srt").read_text()
    assert text == "1\n00:00:00,000 --> 00:00:01,000\n1.00 s of sound\n\n"


def test_a_folder_without_sound_is_an_error(hear, tmp_path):
    (tmp_path / "in").mkdir()
    code, _, err = hear(tmp_path / "in")
    assert code == 1
    assert "a folder" in err


def test_bad_files_do_not_end_the_rest_and_are_listed_at_the_end(sound, hear, tmp_path):
    """WH-14, WH-17."""
    whole = sound("a.flac", 31)
    cut, empty, text = (tmp_path / name for name in ("cut.flac", "empty.wav", "text.wav"))
    data = encoded(tone(40, 8_000), 8_000, "FLAC")
    cut.write_bytes(data[: len(data) // 2])
    empty.write_bytes(b"")
    text.write_text("text " * 20)
    none = tmp_path / "none.wav"
    none.write_bytes(encoded(np.zeros(0, np.float32), 8_000))
    code, out, err = hear(cut, empty, whole, text, none, "gone.wav")
    assert code == 1
    assert f"{whole}: {WINDOW} 1.00 s of sound" in out.splitlines()
    assert "5 of 6 files failed:" in err
    table = err.partition("files failed:\n")[2]
    for path in (cut, empty, text, none, "gone.wav"):
        assert str(path) in table


def test_formats_of_json_are_one_object_a_line(sound, hear):
    paths = [sound("a.flac", 2), sound("b.flac", 61)]
    code, out, _ = hear(*paths, "--format", "verbose_json", "--timestamps", "word")
    first, second = map(json.loads, out.splitlines())
    assert code == 0
    assert (first["file"], first["duration"]) == (paths[0], 2.0)
    assert [segment["end"] for segment in second["segments"]] == [30, 60, 61]
    assert [word["word"] for word in first["words"]] == ["2.00", "s", "of", "sound"]
    assert "words" not in json.loads(hear(paths[0], "--format", "verbose_json")[1])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--format", "xml"], "verbose_json"),
        (["--timestamps", "word"], "write --format verbose_json"),
        (["b.flac", "--format", "vtt"], "add --output-dir"),
    ],
)
def test_arguments_that_do_not_go_together_are_errors_of_the_command_line(sound, hear, asked, says):
    code, _, err = hear(sound("a.flac"), *asked)
    assert code == 2
    assert says in err


def test_batched_windows_say_the_same_in_the_same_order(sound, hear):
    path = sound("a.flac", 200)
    assert hear(path, "--batched") == hear(path)


def test_an_output_that_is_there_with_the_same_settings_is_skipped(sound, hear, tmp_path):
    path, out = sound("a.flac"), tmp_path / "out"
    assert hear(path, "--output-dir", out)[0] == 0
    written = (out / "a.flac.txt").stat().st_mtime_ns
    code, _, err = hear(path, sound("b.flac"), "--output-dir", out)
    assert code == 0
    assert err == f"Skipped: {path}: {out / 'a.flac.txt'} is there\n"
    assert (out / "a.flac.txt").stat().st_mtime_ns == written
    assert (out / "b.flac.txt").read_text() == "1.00 s of sound\n"


def test_an_output_of_other_settings_is_not_written_over_unless_it_is_asked_for(
    sound, hear, tmp_path
):
    path, out = sound("a.flac"), tmp_path / "out"
    assert hear(path, "--output-dir", out)[0] == 0
    again = (path, "--output-dir", out, "--prompt", "other")
    code, _, err = hear(*again)
    assert code == 1
    assert "give --overwrite" in err
    assert (out / "a.flac.txt").read_text() == "1.00 s of sound\n"
    assert hear(*again, "--overwrite")[0] == 0
    assert (out / "a.flac.txt").read_text() == "other\n"


def test_a_sound_that_changed_is_not_taken_for_the_one_that_was_heard(sound, hear, tmp_path):
    path, out = sound("a.flac"), tmp_path / "out"
    hear(path, "--output-dir", out)
    sound("a.flac", 2)
    assert hear(path, "--output-dir", out)[0] == 1
    (out / "a.flac.txt").unlink()
    assert hear(path, "--output-dir", out)[0] == 0
    assert (out / "a.flac.txt").read_text() == "2.00 s of sound\n"


def test_what_the_journal_tells_is_not_heard_again_and_a_cut_line_tells_nothing(
    sound, hear, tmp_path
):
    out = tmp_path / "out"
    asked = (sound("a.flac", 95), "--output-dir", out)
    assert hear(*asked)[0] == 0
    begun, first, second, *_ = filter(None, (out / NAME).read_text().splitlines())
    told = json.loads(second)
    told["segments"][0]["text"] = " as it was told"
    (out / NAME).write_text("\n".join([begun, first, json.dumps(told), '{"output": "a.flac.t']))
    (out / "a.flac.txt").unlink()
    assert hear(*asked)[0] == 0
    want = f"{WINDOW} as it was told {WINDOW} 5.00 s of sound\n"
    assert (out / "a.flac.txt").read_text() == want


def started(*words):
    command = [sys.executable, "-m", "mstar_core", "transcribe", "echo", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_is_gone_on_with_where_it_stood(sound, hear, tmp_path, sent):
    path, out = sound("a.flac", 2 * 3600), tmp_path / "out"
    whole = f"{' '.join([WINDOW] * 240)}\n"
    journal = out / NAME
    run = started(path, "--output-dir", out)
    wait_for(lambda: journal.is_file() and journal.read_bytes().count(b"segments") >= 5)
    os.kill(run.pid, sent)
    _, err = run.communicate(timeout=60)
    assert not (out / "a.flac.txt").exists()
    partial = out / "a.flac.partial.txt"
    if sent == signal.SIGINT:
        assert run.returncode == 130
        assert f"Partial: {path} was heard up to" in err
        assert whole.startswith(partial.read_text().rstrip())
    before = journal.read_bytes().count(b"segments")
    code, _, err = hear(path, "--output-dir", out)
    assert (code, err) == (0, "")
    assert (out / "a.flac.txt").read_text() == whole
    assert not partial.exists()
    assert journal.read_bytes().count(b'"segments"') == 240
    assert 5 <= before < 240


@pytest.mark.parametrize("style", ["json", "text"])
def test_ctrl_c_prints_what_was_heard_and_says_that_it_is_a_part(sound, hear, monkeypatch, style):
    path, heard = sound("a.flac", 95), []

    def interrupted(self, job, segments):
        heard.extend(segments)
        if len(heard) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Printed, "add", interrupted)
    code, out, err = hear(path, "--format", style)
    assert code == 130
    assert err == f"Partial: {path} was heard up to 60.0 s of 95.000 s\n"
    if style == "json":
        told = json.loads(out)
        assert (told["partial"], told["heard_seconds"]) == (True, 60.0)
        out = told["text"] + "\n"
    assert out == f"{WINDOW} {WINDOW}\n"


def test_progress_is_told_in_seconds_of_sound(sound, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    assert main(["transcribe", "echo", sound("a.flac", 95), sound("b.flac", 10)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) >= 3
    assert told[-1].startswith(f"INFO {progress.__name__}: 100.0 of 105.0 s of sound, ")
    assert all(line.endswith(" times real time") for line in told)


def peak_mib(path):
    """Memory of a run, at its peak."""
    code = (
        "import re, sys; from mstar_core.cli import main; code = main(sys.argv[1:]);"
        "status = open('/proc/self/status').read();"
        "print(re.search(r'VmHWM:\\s+(\\d+)', status)[1], file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "transcribe", "echo", path, *QUIET]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stderr) / 1024


def test_memory_does_not_grow_with_the_sound(sound):
    """An hour more of float32 at 4,000 Hz would be 55 MiB."""
    assert peak_mib(sound("long.flac", 4_200)) - peak_mib(sound("short.flac", 600)) < 20


def test_a_folder_that_takes_no_more_is_said_so(sound, hear, tmp_path):
    out = tmp_path / "out"
    (out / NAME).mkdir(parents=True)
    code, _, err = hear(sound("a.flac"), "--output-dir", out)
    assert code == 2
    assert "name another folder" in err
