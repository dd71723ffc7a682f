"""How much memory pools may take, and what everything takes, by owner."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from mstar_core.engine.device_memory import free_device_bytes
from mstar_core.errors import ConfigError, Words
from mstar_core.fixed import FixedBuffers


def pool_budget(
    configured: int | None, device: torch.device, beside: Callable[[], int]
) -> tuple[int, str]:
    """Bytes that KV pools may take together, and where the number comes from.

    ``beside``: the bytes of everything else that is built on the device, asked for on a GPU only.
    """
    if configured is not None:
        return configured, "engine.kv_memory"
    if device.type == "cuda":
        left = max(0, free_device_bytes(device) - beside())
        return left * 9 // 10, "nine tenths of what weights and states leave free on the GPU"
    return free_host_bytes() // 4, "a quarter of free memory"


@contextmanager
def memory_for(what: str, settings: Sequence[str]) -> Iterator[None]:
    """Where the device has no memory for ``what``, a ConfigError with the ``settings`` it is by."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            where=what,
            got=Words(f"no memory on the device: {str(error).partition('. ')[0]}"),
            want="all that is built at the start to fit",
            fix=f"lower {' or '.join(settings)}, or free the device for it",
        ) from error


def free_host_bytes() -> int:
    """Bytes of host memory that are free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def share(demands: Mapping[str, int], budget: int) -> dict[str, int | None]:
    """Bytes for each pool: all that it could use (None), or its share of ``budget``."""
    total = sum(demands.values())
    if total <= budget:
        return dict.fromkeys(demands)
    return {key: budget * demand // total for key, demand in demands.items()}


def weight_bytes(modules: Mapping[str, nn.Module]) -> dict[str, int]:
    """Bytes of parameters and buffers per node, each tensor counted once."""
    seen: set[int] = set()
    total: dict[str, int] = {}
    for name, module in modules.items():
        total[name] = 0
        for tensor in [*module.parameters(), *module.buffers()]:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                total[name] += tensor.numel() * tensor.element_size()
    return total


def bytes_by_owner(modules: Mapping[str, nn.Module], buffers: FixedBuffers) -> dict[str, int]:
    """Owner → bytes: weights per node, pools per resource, edges, carry, staging blocks."""
    weights = {f"weights {name}": n for name, n in weight_bytes(modules).items()}
    return {**weights, **buffers.bytes_by_owner()}
