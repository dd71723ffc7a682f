"""``new-plugin``: what it writes, and what it refuses."""

import ast
import tomllib

import pytest

import mstar_core.testing
from mstar_core.cli import main
from mstar_core.cli.new_plugin import FILES, texts, words_of
from mstar_core.plugins.builtin import OPERATIONS
from mstar_core.plugins.manifest import read_manifest


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_every_text_is_what_its_name_says(kind, operation):
    for name, text in texts(kind, words_of("my_own", kind, operation)).items():
        assert "$" not in name + text
        if name.endswith(".py"):
            ast.parse(text)
        if name.endswith(".toml"):
            tomllib.loads(text)


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_every_operation_has_a_contract_to_subclass(operation):
    contract = getattr(mstar_core.testing, words_of("x", "backend", operation)["Contract"])
    assert contract.operation == operation


def test_a_plugin_is_written_into_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-plugin", "my_own", "--kind", "backend"]) == 0
    package = tmp_path / "mstar-my-own" / "mstar_my_own"
    assert read_manifest(package).offers.backends == ("sampling.my_own",)
    assert "mstar-my-own/mstar_my_own/plugin.py" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", ["", "Big", "1st", "a-b", "a__b", "a.b", "../up", "a b"])
def test_a_name_that_no_package_can_have_is_refused(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert main(["new-plugin", name]) == 2
    assert "small letters" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("asked", "owner"),
    [
        (["core"], "mstar-core"),
        (["torch", "--kind", "backend"], "mstar-core"),
        (["tin"], "mstar-tin"),
        (["tin", "--kind", "backend"], "mstar-tin"),
        (["brass"], "mstar-tin"),
    ],
)
def test_a_name_that_is_taken_is_refused(tmp_path, monkeypatch, capsys, asked, owner):
    info, package = tmp_path / "mstar_tin-1.dist-info", tmp_path / "mstar_tin"
    for folder in (info, package):
        folder.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mstar-tin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[mstar_core.plugins]\ntin = mstar_tin.plugin\n")
    (package / "__init__.py").touch()
    manifest = 'api = 1\ntitle = "t"\n[offers]\nmodels = ["brass"]\n'
    (package / "mstar_plugin.toml").write_text(manifest)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["new-plugin", *asked]) == 2
    assert f"{asked[0]}, which {owner} " in capsys.readouterr().err
    assert not list(tmp_path.glob("mstar-*"))


def test_a_folder_that_cannot_be_made_is_an_error_of_the_command_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["new-plugin", "tiny", "--folder", str(tmp_path / "file" / "in")]) == 2
    assert "a folder that can be made" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["new-plugin", "tiny", "--folder", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
