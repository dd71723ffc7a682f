"""The pytest plugin. Every pytest run where the core is installed loads it: it imports pytest only.

Fixtures: ``tiny_engine``, ``recorder``, ``no_hook_in_a_step``, ``assert_conserved``,
``without_torch``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mstar_core.engine import Engine
    from mstar_core.engine.recorder import Recorder

_KIT = ("capture", "contracts", "cores", "hooks", "ops", "resident", "resources", "world")
pytest.register_assert_rewrite(*(f"mstar_core.testing.{name}" for name in _KIT))

_BLOCKED = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); sys.modules['torch'] = None"
)


@pytest.fixture
def no_hook_in_a_step() -> Iterator[None]:
    """Fails the test if a hook was asked while a step was launched or read, or while serving."""
    from mstar_core.testing.hooks import hooks_watched

    with hooks_watched() as asked:
        yield
    assert not asked, f"asked during a step: {', '.join(asked)}"


@pytest.fixture
def assert_conserved() -> Callable[[Any], None]:
    """``assert_conserved(engine)``: pages, slots and rows are all free or cooling."""

    def check(engine: Any) -> None:
        held = engine.stats()["held"]
        lost = {what: pair for what, pair in held.items() if pair[0] != pair[1]}
        assert not lost, f"not given back (free, total): {lost}"

    return check


@pytest.fixture
def tiny_engine(
    tmp_path: Path, no_hook_in_a_step: None, assert_conserved: Callable[[Any], None]
) -> Iterator[Callable[..., Engine]]:
    """Opens engines: ``tiny_engine(config, "engine.in_flight=2", device=…)``.

    ``config`` is a file, the name of a config that a plugin ships, or the ``model:`` section of one
    (``{"name": …, "path": …}``), so that any model offer can be opened. When the test ends nothing
    may be held, and every engine is closed.
    """
    from mstar_core.engine import Engine

    opened: list[Engine] = []

    def open_engine(config: str | Path | Mapping[str, Any], *sets: str, device: Any = None) -> Any:
        if isinstance(config, Mapping):
            file = tmp_path / f"engine-{len(opened)}.yaml"
            file.write_text(json.dumps({"model": {**config}}, default=str))
            config = file
        opened.append(Engine.open(config, sets, device=device, offline=True))
        return opened[-1]

    yield open_engine
    try:
        for engine in opened:
            assert_conserved(engine)
    finally:
        for engine in opened:
            engine.close()


@pytest.fixture
def recorder() -> Recorder:
    """The graph backend that records on a CPU what a CUDA graph would, over no fixed buffers."""
    import torch

    from mstar_core.engine.recorder import Recorder
    from mstar_core.fixed import FixedBuffers

    return Recorder(FixedBuffers(torch.device("cpu")))


@pytest.fixture
def without_torch() -> Callable[..., str]:
    """``without_torch(code, *arguments)``: stdout of a process in which torch cannot be imported.

    It has this process's ``sys.path``; the test fails where the process does.
    """

    def run(code: str, *arguments: str) -> str:
        command = [sys.executable, "-c", f"{_BLOCKED}\n{code}", json.dumps(sys.path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
