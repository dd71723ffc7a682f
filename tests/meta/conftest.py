"""The source files of this repository, parsed once."""

import ast
from functools import cache
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]


@frozen
class Source:
    """One parsed module."""

    path: Path

    @property
    def name(self):
        """The path from the repository's root."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self):
        """Its dotted name (``mstar_core.plugins.ask``)."""
        parts = self.path.with_suffix("").relative_to(ROOT).parts
        return ".".join(parts).removesuffix(".__init__")

    @property
    def lines(self):
        return _text(self.path).count("\n")

    @property
    def tree(self):
        return _tree(self.path)

    def functions(self):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]


@cache
def _text(path):
    return path.read_text(encoding="utf-8")


@cache
def _tree(path):
    return ast.parse(_text(path))


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def core():
    """Every module of the core."""
    return [Source(path) for path in sorted((ROOT / "mstar_core").rglob("*.py"))]


@pytest.fixture(scope="session")
def shipped(core):
    """Every module that goes into a wheel: the core's and the plugins'."""
    found = sorted(ROOT.glob("plugins/*/mstar_*/**/*.py"))
    return [*core, *(Source(path) for path in found)]
