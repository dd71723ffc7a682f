"""Kernels compile for both vendors at published sizes; the interpreter would not tell."""

import subprocess
import sys
from pathlib import Path

import pytest

from mstar_triton.plugin import MODULES

TARGETS = ("sm_90", pytest.param("gfx942", marks=pytest.mark.long))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operation", MODULES)
def test_every_kernel_compiles_and_its_tiles_fit(monkeypatch, operation, target):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    script = Path(__file__).with_name("compiling.py")
    command = [sys.executable, str(script), target, operation]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernel" in done.stdout


def test_steps_share_kernels_whatever_rows_pages_and_tokens_they_count(monkeypatch):
    """As far as they share a tile: an eager step of a new size would wait for a compiler."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    script = Path(__file__).with_name("compiling.py")
    command = [sys.executable, str(script), "sources"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(line.split() for line in done.stdout.splitlines())
    assert {"few_rows_kernel", "streamed_kernel", "decode_kernel", "prefill_kernel"} <= set(counts)
    assert "chunk_kernel" in counts
    assert counts.pop("scan_kernel") == "2"  # of few programs, and of many
    assert set(counts.values()) == {"1"}, counts
