"""What the command does with bytes that are no UTF-8, and with streams that are closed or full."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mstar_core.cli.streams import shown, text_of
from mstar_core.errors import UsageError

ROOT = Path(__file__).parents[3]
NO_TORCH = (
    "import sys; sys.modules['torch'] = None; from mstar_core.cli import main; sys.exit(main())"
)
ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
GENERATE = ("generate", "nowhere.yaml", "--prompt")


def shell(redirection, *arguments, env=None, stdin=b""):
    """The command through a shell, with ``redirection`` after it; output in bytes."""
    command = [sys.executable, "-c", NO_TORCH, *arguments]
    return subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *command],
        capture_output=True,
        check=False,
        input=stdin,
        env={"PYTHONPATH": str(ROOT), **(env or {})},
    )


def facts(done):
    err = done.stderr.decode()
    assert "Traceback" not in err
    assert all(f"\n  {fact} " in err for fact in ("got", "want", "fix")), err
    return err


@pytest.mark.parametrize("env", [{}, ASCII], ids=["utf8", "posix"])
@pytest.mark.parametrize("flag", ["--prompt", "--system", "--stop", "--set"])
def test_an_argument_that_is_no_utf_8_is_refused_by_its_flag(flag, env):
    arguments = [*GENERATE, "hi", flag, b"caf\xc3"]
    done = shell("", *arguments, env=env)
    assert done.returncode == 2
    assert facts(done).startswith(f"Error: {flag}\n  got   b'caf\\xc3'\n  want  text in UTF-8")


@pytest.mark.parametrize("env", [{}, ASCII], ids=["utf8", "posix"])
def test_a_prompt_on_stdin_that_is_no_utf_8_is_refused(env):
    done = shell("", *GENERATE, "-", env=env, stdin=b"hi \xff")
    assert done.returncode == 1
    assert facts(done).startswith("Error: --prompt\n  got   'utf-8' codec can't decode byte 0xff")


@pytest.mark.parametrize("env", [{}, ASCII], ids=["utf8", "posix"])
@pytest.mark.parametrize("prompt", ["café", "-"])
def test_a_prompt_in_utf_8_is_taken_in_every_locale(prompt, env):
    done = shell("", *GENERATE, prompt, env=env, stdin="café".encode())
    assert facts(done).startswith("Error: nowhere.yaml\n  got   no such file")


def test_a_closed_stdin_is_named():
    done = shell("<&-", *GENERATE, "-")
    assert done.returncode == 1
    assert "got   stdin is closed" in facts(done)


@pytest.mark.parametrize("verb", [("list-plugins", "--json"), ("check", "x.yaml"), ("--help",)])
def test_a_closed_stdout_is_refused_before_anything_is_done(verb):
    done = shell(">&-", *verb)
    assert done.returncode == 2
    assert facts(done).startswith("Error: stdout\n  got   closed")


@pytest.mark.parametrize("redirection", [">/dev/full", "1</dev/null"])
def test_a_stdout_that_takes_nothing_is_one_error_and_exit_1(redirection):
    done = shell(redirection, "list-plugins")
    assert done.returncode == 1
    err = facts(done)
    assert err.startswith("Error: writing the result")
    assert err.count("\n") == 4


def test_a_closed_stderr_leaves_result_and_exit_code_as_they_are():
    done = shell("2>&-", "list-plugins", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == 1
    assert shell("2>&-", "check", "nowhere.yaml").stdout == b""


def test_a_name_that_is_no_utf_8_is_printed_with_backslashes():
    done = shell("", "check", b"z\xff.yaml")
    assert done.returncode == 1
    assert facts(done).startswith("Error: z\\udcff.yaml\n  got   no such file")


def test_bytes_of_utf_8_that_a_locale_left_alone_become_their_characters():
    left = "é.wav".encode().decode("ascii", "surrogateescape")
    assert text_of("--x")(left) == text_of("--x")("é.wav") == shown(left) == "é.wav"
    assert shown("\udcff.wav") == "\udcff.wav"
    with pytest.raises(UsageError, match="UTF-8"):
        text_of("--x")("\udcff")
