"""Checkpoint folders that the tests of this plugin read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[4] / "shared" / "models"
TINY = Path(__file__).parents[1] / "mstar_qwen35" / "tiny"


@pytest.fixture(scope="session")
def shared():
    if not SHARED.is_dir():
        pytest.skip("the shared reference folder is not beside the checkout")
    return SHARED


@pytest.fixture
def tiny():
    return TINY


@pytest.fixture
def folder(tmp_path):
    """``folder(changes)``: the tiny checkpoint's configuration with changes, in a new folder.

    A change is a dotted path to a value; None removes the key.
    """

    def write(changes=None, text_only=False):
        config = json.loads((TINY / "config.json").read_text())
        for path, value in (changes or {}).items():
            *parents, last = path.split(".")
            at = config
            for name in parents:
                at = at[name]
            if value is None:
                at.pop(last, None)
            else:
                at[last] = value
        (tmp_path / "config.json").write_text(
            json.dumps(config["text_config"] if text_only else config)
        )
        return tmp_path

    return write


@pytest.fixture(scope="session")
def chat_folder(shared, tmp_path_factory):
    """A golden checkpoint's configuration with the shared tokenizer and template."""
    folder = tmp_path_factory.mktemp("chat")
    golden = shared / "golden" / "qwen3_5-tiny-untied-8l"
    for file in (*golden.glob("*config.json"), *(shared / "chat").glob("tokenizer*.json")):
        shutil.copy(file, folder)
    return folder
