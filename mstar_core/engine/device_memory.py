"""What is free on a device."""

from __future__ import annotations

import torch

from mstar_core.errors import ConfigError

INSTALL = "or install a driver and a CUDA build of torch"


def free_device_bytes(device: torch.device) -> int:
    """Bytes free on a GPU now, by the driver's own count; never below 0."""
    free, _ = torch.cuda.mem_get_info(device)
    return max(0, int(free))


def check_gpu(name: str) -> None:
    """Raise ConfigError for what is no GPU's name, and for a GPU that torch does not find."""
    kind, colon, index = name.partition(":")
    if kind != "cuda" or bool(colon) != index.isdecimal():
        want = "cpu, cuda or cuda:INDEX"
        raise ConfigError(where="device", got=name, want=want, fix="write cpu or cuda")
    found = torch.cuda.device_count()
    if int(index or 0) >= found:
        raise ConfigError(
            where="device",
            got=name,
            want=f"an index below {found}" if found else "cpu where torch finds no GPU",
            fix="name a GPU that is there" if found else f"write cpu; {INSTALL}",
        )


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
            fix=f"set device to auto; {INSTALL}",
        )
    return "cpu"
