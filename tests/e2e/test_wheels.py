"""What a user gets: wheels, installed without an index, list and load what they bring."""

import zipfile

import pytest

WHEELS = {
    "mstar_core": "mstar_core",
    "mstar_qwen35": "mstar_qwen35",
    "mstar_whisper": "mstar_whisper",
}


def names_in(wheels, distribution):
    (wheel,) = wheels.glob(f"{distribution}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.parametrize(("distribution", "package"), WHEELS.items())
def test_a_wheel_holds_its_package_its_types_and_its_licence_only(wheels, distribution, package):
    names = names_in(wheels, distribution)
    assert {name.split("/")[0] for name in names} == {package, f"{distribution}-0.1.0.dist-info"}
    assert f"{package}/py.typed" in names
    assert f"{distribution}-0.1.0.dist-info/licenses/LICENSE" in names
    assert not any("__pycache__" in name or "/tests/" in name for name in names)


@pytest.mark.parametrize("distribution", ["mstar_qwen35", "mstar_whisper"])
def test_a_plugin_wheel_holds_its_manifest(wheels, distribution):
    assert f"{distribution}/mstar_plugin.toml" in names_in(wheels, distribution)


def test_wheels_installed_into_an_empty_folder_list_both_plugins(installed):
    rows = installed.rows("--probe")
    for name in ("qwen35", "whisper"):
        assert (rows[name]["state"], rows[name]["origin"]) == ("ready", "wheel")
        assert "provide_models" in rows[name]["hooks"]
    where = installed.python("import mstar_core; print(mstar_core.__file__)")
    assert where.startswith(str(installed.folder))
