"""The packages of this repository: light plugin modules, true manifests, configs that load."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mstar_core.config import resolve
from mstar_core.plugins.manifest import read_manifest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(ROOT.glob("plugins/*/mstar_*/"))
CONFIGS = sorted({*ROOT.glob("configs/*.yaml"), *ROOT.glob("plugins/*/mstar_*/configs/*.yaml")})
MODULE_LINES = 40


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_plugin_module_is_short_and_imports_without_torch(package):
    assert len((package / "plugin.py").read_text().splitlines()) <= MODULE_LINES
    blocked = "; ".join(f"sys.modules[{n!r}] = None" for n in ("torch", "transformers", "triton"))
    code = f"import sys; {blocked}; import {package.name}.plugin"
    path = f"{package.parent}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_manifest_reads_and_its_folder_of_configs_is_there(package):
    manifest = read_manifest(package)
    assert manifest.offers.names()
    assert manifest.configs is None or manifest.config_files()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_plugin_pins_the_core_and_ships_its_licence(package):
    project = tomllib.loads((package.parent / "pyproject.toml").read_text())["project"]
    pins = [d for d in project["dependencies"] if d.startswith("mstar-core")]
    assert [pin.endswith(">=0.1,<0.2") for pin in pins] == [True]
    assert (package.parent / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (package / "py.typed").exists()
    assert project["entry-points"]["mstar_core.plugins"]


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_config_of_the_repository_loads(file):
    assert resolve(file).config.model.name


def test_the_requirements_begin_with_the_core_so_that_an_old_pip_finds_it():
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    assert lines[0] == "-e .[testing,audio,serve,serve-fast]"
    plugins = {line.removeprefix("-e ./") for line in lines if line.startswith("-e ./")}
    assert plugins == {f"plugins/{package.parent.name}" for package in PACKAGES}
