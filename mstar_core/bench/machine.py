"""What a measurement was taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import date
from importlib.metadata import version
from pathlib import Path

from mstar_core import __version__


def described(command: str) -> dict[str, str]:
    """Date, machine, versions, commit and command, as a measurement's record holds them."""
    return {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {_processor()}, {os.cpu_count()} cores{_gpus()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "mstar-core": __version__,
        "commit": commit_of(Path(__file__)),
        "command": command,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "?")


def _gpus() -> str:
    """The models of NVIDIA's devices, as the driver says them."""
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for card in cards for line in card.read_text().splitlines()]
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model")]
    return "".join(f", {name}" for name in names)


def commit_of(file: Path) -> str:
    """The commit of the checkout that ``file`` is tracked in, ``-dirty`` behind it where changed.

    A file that is installed inside somebody else's checkout is of no commit.
    """
    if not _git(file, "ls-files", file.name):
        return "not a checkout"
    return _git(file, "describe", "--always", "--dirty", "--exclude=*") or "no commit"


def _git(file: Path, *words: str) -> str:
    """What git says beside ``file``; nothing where it fails, or is not installed."""
    command = ["git", *words]
    try:
        told = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return told.stdout.strip()
