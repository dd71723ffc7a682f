"""Which accelerators this machine has, asked without torch.

``cpu`` is always there. CUDA is asked of the driver's own library through ctypes, ROCm is its
device file. Nothing here creates a context on a device.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from attrs import frozen

from mstar_core.plugins.manifest import HARDWARE

_MAJOR, _MINOR = 75, 76
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`` and ``_MINOR`` of the driver's header."""


@frozen(kw_only=True)
class Hardware:
    """The devices of one machine."""

    cuda: tuple[tuple[int, int], ...] = ()
    """Compute capability of each CUDA device."""
    rocm: bool = False

    def fits(self, wanted: str) -> bool:
        """Whether ``wanted`` (``cpu``, ``cuda``, ``cuda>=9.0``, ``rocm``) is here."""
        match = HARDWARE.fullmatch(wanted)
        if match is None:
            return False
        if match["kind"] != "cuda":
            return match["kind"] == "cpu" or self.rocm
        least = (int(match["major"] or 0), int(match["minor"] or 0))
        return any(capability >= least for capability in self.cuda)

    def names(self) -> tuple[str, ...]:
        """``cpu``, then each device: ``cuda 9.0``, ``rocm``."""
        cuda = tuple(f"cuda {major}.{minor}" for major, minor in self.cuda)
        return ("cpu", *cuda, *(("rocm",) if self.rocm else ()))


@cache
def this_machine() -> Hardware:
    """The hardware of this machine; asked once per process."""
    return Hardware(cuda=_cuda_devices(), rocm=Path("/dev/kfd").exists())


def _cuda_devices() -> tuple[tuple[int, int], ...]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) != 0:
            return ()
        count = ctypes.c_int()
        driver.cuDeviceGetCount(ctypes.byref(count))
        return tuple(_capability(driver, ordinal) for ordinal in range(count.value))
    except (OSError, AttributeError):
        return ()


def _capability(driver: ctypes.CDLL, ordinal: int) -> tuple[int, int]:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return major.value, minor.value
