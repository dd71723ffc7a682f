"""Wheels built and installed without an index: ours, and two written by an outsider."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
PACKAGES = (".", "plugins/qwen35", "plugins/whisper")

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{dist}"
version = "0.1.0"
dependencies = ["mstar-core>=0.1,<0.2"]
[project.entry-points."mstar_core.plugins"]
{name} = "{package}.plugin"
"""
MODEL_PLUGIN = '''
"""An outsider's model."""
from mstar_core import hookimpl

@hookimpl
def provide_models(registry):
    registry.add("outsider", "mstar_outsider.model:Outsider")
'''
BACKEND_PLUGIN = '''
"""An outsider's backend."""
from mstar_core import hookimpl

@hookimpl
def provide_backends(registry):
    registry.add("sampling", "outside", "mstar_outside.sampling:BACKEND", priority=90)
'''
BACKEND = '''
"""The core's sampling under another name."""
from mstar_core.ops.sampling.torch_backend import BACKEND as TORCH

class Outside(type(TORCH)):
    name = "outside"

BACKEND = Outside()
'''
OUTSIDERS = {
    "model/pyproject.toml": PROJECT.format(
        dist="mstar-outsider", name="outsider", package="mstar_outsider"
    ),
    "model/mstar_outsider/__init__.py": "",
    "model/mstar_outsider/plugin.py": MODEL_PLUGIN,
    "model/mstar_outsider/model.py": "class Outsider:\n    pass\n",
    "model/mstar_outsider/mstar_plugin.toml": (
        'api = 1\ntitle = "A model from outside"\nneeds_ops = ["sampling"]\n'
        '[offers]\nmodels = ["outsider"]\n'
    ),
    "backend/pyproject.toml": PROJECT.format(
        dist="mstar-outside", name="outside", package="mstar_outside"
    ),
    "backend/mstar_outside/__init__.py": "",
    "backend/mstar_outside/plugin.py": BACKEND_PLUGIN,
    "backend/mstar_outside/sampling.py": BACKEND,
    "backend/mstar_outside/mstar_plugin.toml": (
        'api = 1\ntitle = "Sampling from outside"\n[offers]\nbackends = ["sampling.outside"]\n'
    ),
}
"""File → text of two distributions that were never in this repository."""


@frozen
class Target:
    """A folder into which wheels were installed, and Python with that folder first on its path."""

    folder: Path

    def python(self, code: str, *arguments: str) -> str:
        """The stdout of ``code`` run there, away from the checkout. Fails on another exit code."""
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env={"PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cli(self, *arguments: str) -> str:
        """The stdout of ``mstar-core`` there."""
        return self.python(
            "import sys; from mstar_core.cli import main; sys.exit(main())", *arguments
        )

    def rows(self, *arguments: str) -> dict[str, dict]:
        """The rows of ``list-plugins --json`` there, by plugin name."""
        document = json.loads(self.cli("list-plugins", "--json", *arguments))
        return {row["name"]: row for row in document["plugins"]}


def build(source: Path, into: Path) -> None:
    """Build one wheel without an index and without a build environment."""
    command = [*PIP, "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(into), str(source)], check=True)


def install(wheels: Path, folder: Path) -> Target:
    """Install every wheel of a folder into an empty one, without an index."""
    files = sorted(map(str, wheels.glob("*.whl")))
    command = [*PIP, "install", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, *files], check=True)
    return Target(folder)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """A folder with the wheels of the core and both plugins."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES:
        build(ROOT / package, folder)
    return folder


@pytest.fixture(scope="session")
def installed(wheels, tmp_path_factory):
    """The core and both plugins, installed from their wheels."""
    return install(wheels, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def outsider_site(wheels, tmp_path_factory):
    """The core beside a model and a backend that an outsider wrote, all from wheels."""
    sources, built = tmp_path_factory.mktemp("outsiders"), tmp_path_factory.mktemp("built")
    for name, text in OUTSIDERS.items():
        file = sources / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for package in ("model", "backend"):
        build(sources / package, built)
    (core,) = wheels.glob("mstar_core-*.whl")
    (built / core.name).write_bytes(core.read_bytes())
    return install(built, tmp_path_factory.mktemp("outsider-site"))


@pytest.fixture(scope="session")
def build_wheel():
    """``build_wheel(source, into)``."""
    return build


@pytest.fixture(scope="session")
def install_wheels():
    """``install_wheels(wheels, folder)`` → where they are."""
    return install
