"""What README shows of a command is what the command prints; its program runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mstar_core.cli import main
from mstar_core.plugins import discover

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```console\n\$ mstar-core ([^\n]+)\n(.+?)^```$", README, re.M | re.S)
NEED = "README shows editable installations of this repository's plugins"


@pytest.fixture(autouse=True)
def as_in_the_readme():
    found = {record.name: record.origin for record in discover()}
    if dict.fromkeys(("echo", "qwen35", "whisper"), "editable").items() - found.items():
        pytest.skip(NEED)


def pattern(sample: str) -> str:
    """A shown output; a line ``…`` stands for any lines, ``…`` within a line for any text."""
    lines = ["(?:.*\n)*?" if line.strip() == "…" else words(line) for line in sample.splitlines()]
    return "".join(lines)


def words(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…"))) + "\n"


def narrow(text: str) -> str:
    """One space between words: columns are as wide as what else is installed."""
    return re.sub(r"(?<=\S) +", " ", text)


@pytest.mark.parametrize(
    ("command", "sample"),
    [shown for shown in SHOWN if not shown[0].startswith(("generate", "transcribe", "serve"))],
    ids=lambda text: text.split()[0],
)
def test_a_shown_output_is_what_the_command_prints(command, sample, capsys):
    main(shlex.split(command))
    out, err = capsys.readouterr()
    assert re.fullmatch(pattern(narrow(sample)), narrow(out + err)), out + err


def test_the_shown_outputs_are_found():
    assert [command.split()[0] for command, _ in SHOWN].count("check") == 1
    assert len(SHOWN) >= 4


def test_the_shown_program_runs(capsys):
    (program,) = re.findall(r"^```python\n(.+?)^```$", README, re.M | re.S)
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("length ")
