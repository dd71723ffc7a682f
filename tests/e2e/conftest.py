"""Wheels built and installed without an index: ours, and those of an outsider."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
PACKAGES = (".", "plugins/qwen35", "plugins/whisper")


@frozen
class Target:
    """A folder into which wheels were installed, and Python with that folder first on its path."""

    folder: Path

    def python(self, code: str, *arguments: str) -> str:
        """The stdout of ``code`` run there, away from the checkout. Fails on another exit code."""
        done = self.run(["-c", code, *arguments], self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, and torch with one thread: tests run beside each other."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env={"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def suite(self, folder: Path) -> str:
        """The last line of pytest over the tests in ``folder``, run there. Fails if one fails."""
        done = self.run(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)], folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()[-1]

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
def site_of(wheels, tmp_path_factory):
    """``site_of(folders)``: our wheels beside those built from ``folders``, in an empty folder."""

    def make(folders: Iterable[Path]) -> Target:
        built = tmp_path_factory.mktemp("built")
        for folder in folders:
            build(folder, built)
        for wheel in wheels.glob("*.whl"):
            shutil.copy(wheel, built)
        return install(built, tmp_path_factory.mktemp("site"))

    return make


@pytest.fixture(scope="session")
def build_wheel():
    """``build_wheel(source, into)``."""
    return build


@pytest.fixture(scope="session")
def install_wheels():
    """``install_wheels(wheels, folder)`` → where they are."""
    return install
