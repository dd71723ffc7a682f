"""Watching when hooks are asked: none may be while a step is made, or while the engine serves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mstar_core.engine.lifecycle import Lifecycle
from mstar_core.plugins.wiring import Wiring


@contextmanager
def hooks_watched() -> Iterator[list[str]]:
    """The names of hooks asked inside a step or while sealed, filled as the block runs."""
    asked: list[str] = []
    inside = threading.local()
    ask = Wiring.ask

    def watched(wiring: Wiring, hook: str, **arguments: Any) -> Any:
        if wiring.sealed or getattr(inside, "step", False):
            asked.append(hook)
        return ask(wiring, hook, **arguments)

    def marked(act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            inside.step = True
            try:
                return act(*arguments)
            finally:
                inside.step = False

        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wiring, "ask", watched)
        patch.setattr(Lifecycle, "launch", marked(Lifecycle.launch))
        patch.setattr(Lifecycle, "retire", marked(Lifecycle.retire))
        yield asked
