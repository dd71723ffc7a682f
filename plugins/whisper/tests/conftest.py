"""Checkpoints and sound that the tests of this plugin use."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[4] / "shared"
REAL = Path(__file__).parents[4] / ".cache" / "whisper-tiny.en"
TINY = ("whisper-tiny-en", "whisper-tiny-multilingual")


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of tiny checkpoints with reference output."""
    folder = SHARED / "models" / "golden"
    if not folder.is_dir():
        pytest.skip(f"the reference folder {folder} is not there")
    return folder


@pytest.fixture(scope="session")
def sizes() -> Path:
    """The folder with the configurations and tensor lists of the published sizes."""
    folder = SHARED / "models"
    if not folder.is_dir():
        pytest.skip(f"the reference folder {folder} is not there")
    return folder


@pytest.fixture(scope="session")
def speech() -> Path:
    """The folder of short recordings."""
    folder = SHARED / "data" / "audio"
    if not folder.is_dir():
        pytest.skip(f"the folder of recordings {folder} is not there")
    return folder


@pytest.fixture(scope="session")
def real_weights() -> Path:
    """The published tiny.en checkpoint."""
    if not (REAL / "model.safetensors").is_file():
        pytest.skip(f"the published weights are not in {REAL}: run tools/whisper_weights.sh first")
    return REAL
