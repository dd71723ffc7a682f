"""What is free on a device."""

from __future__ import annotations

import torch

from mstar_core.errors import ConfigError


def free_device_bytes(device: torch.device) -> int:
    """Bytes free on a GPU now, by the driver's own count; never below 0."""
    free, _ = torch.cuda.mem_get_info(device)
    return max(0, int(free))


def pick_device(configured: str) -> str:
    """``cpu`` or ``cuda`` for ``device: auto|cpu|cuda``. Raises ConfigError for a GPU not there."""
    if configured == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if configured == "cuda":
        raise ConfigError(
            where="device",
            got="cuda",
            want="cpu or auto where torch finds no GPU",
            fix="set device to auto, or install a driver and a CUDA build of torch",
        )
    return "cpu"
