"""Sound files that tests make, and the decoder's processes as the kernel sees them."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np


def tone(seconds: float, rate: int, hz: float = 440.0) -> np.ndarray:
    """float32 ``[T]`` at half of full scale."""
    at_T = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hz * at_T)).astype(np.float32)


def encoded(samples: np.ndarray, rate: int, kind: str = "WAV", **more: Any) -> bytes:
    """A file of ``samples`` ``[T]`` or ``[T, channels]``; ``more`` as soundfile has it."""
    import soundfile

    held = io.BytesIO()
    soundfile.write(held, samples, rate, format=kind, **more)
    return held.getvalue()


def silence(seconds: int, rate: int, kind: str, **more: Any) -> bytes:
    """A file of silence, written ten seconds at a time."""
    import soundfile

    held = io.BytesIO()
    with soundfile.SoundFile(held, "w", rate, 1, format=kind, **more) as sound:
        for _ in range(seconds // 10):
            sound.write(np.zeros(10 * rate, dtype=np.float32))
    return held.getvalue()


def memory_file(data: bytes) -> int:
    """A descriptor of ``data``; the caller closes it."""
    file = os.memfd_create("sound")
    os.write(file, data)
    return file


def children(pid: int) -> list[int]:
    """The processes that ``pid`` forked and that run."""
    told = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(each) for each in told.split()]


def memory_kib(pid: int, what: str = "VmRSS") -> int:
    """A line of the memory of ``pid`` in KiB; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(what)), 0)
