"""The calls that README shows are answered by a server."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def shown(kind, server):
    """The one block of a kind, sent to ``server``."""
    (text,) = re.findall(rf"^```{kind}\n(.+?)^```$", README, re.M | re.S)
    assert "http://127.0.0.1:8000" in text
    return text.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{server.port}")


def test_the_call_by_curl_is_answered(server):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    told = subprocess.run(["sh", "-c", shown("sh", server)], capture_output=True, check=True)
    assert b'"content":"Hello"' in told.stdout


def test_the_program_with_openais_client_prints_the_answer(server):
    program = [sys.executable, "-c", shown("py", server)]
    assert subprocess.run(program, capture_output=True, check=True).stdout == b"Hello"
