"""What a measurement was taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import date
from pathlib import Path

import torch

from mstar_core import __version__


def described(command: str) -> dict[str, str]:
    """Date, machine, versions, commit and command, as a measurement's record holds them."""
    return {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {_processor()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mstar-core": __version__,
        "commit": _commit(),
        "command": command,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "?")


def _commit() -> str:
    here = Path(__file__).parent
    told = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "not a checkout"
