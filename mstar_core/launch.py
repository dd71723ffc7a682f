"""The launch door: kernels that do not go through torch's dispatcher are started here.

A graph recorder that watches the dispatcher cannot see a Triton or other foreign launch. Whoever
starts one writes ``launch(kernel, *args, **kwargs)``, and a recorder installs itself as the door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

Door = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

_door: ContextVar[Door | None] = ContextVar("mstar_launch_door", default=None)


def launch(kernel: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Start ``kernel``; what it writes must be among ``args``, allocated by the caller."""
    door = _door.get()
    return kernel(*args, **kwargs) if door is None else door(kernel, args, kwargs)


def takes_triton(device: str) -> bool:
    """Whether a kernel in Triton can be started there: on a GPU, where Triton is installed."""
    return device == "cuda" and find_spec("triton") is not None


@contextmanager
def door(through: Door) -> Iterator[None]:
    """Send every launch of this context through ``through``."""
    token = _door.set(through)
    try:
        yield
    finally:
        _door.reset(token)
