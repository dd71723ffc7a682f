"""``mstar-core explain``: every value and where it came from, without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLUGIN = """
from attrs import frozen, field
from mstar_core import hookimpl
from mstar_core.config import whole

@frozen(kw_only=True)
class Options:
    beams: int = field(default=1, validator=whole(1, 8, "beams"))
    style: str = "plain"

@hookimpl
def provide_models(registry):
    registry.add("scripted", "mstar_scripted.model:Scripted")

@hookimpl
def config_schema():
    return Options
"""
MANIFEST = """
api = 1
title = "scripted"
configs = "configs"
[offers]
models = ["scripted"]
"""


@pytest.fixture
def explain(tmp_path):
    """Run explain in a process of its own where torch cannot be imported."""
    package = tmp_path / "site" / "mstar_scripted"
    info = tmp_path / "site" / "mstar_scripted-0.1.0.dist-info"
    (package / "configs").mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text(PLUGIN)
    (package / "mstar_plugin.toml").write_text(MANIFEST)
    (package / "configs" / "shipped.yaml").write_text("model: {name: scripted}\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mstar-scripted\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        "[mstar_core.plugins]\nscripted = mstar_scripted.plugin\n"
    )

    def explain(*arguments):
        code = (
            "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None; "
            "from mstar_core.cli import main; sys.exit(main())"
        )
        return subprocess.run(
            [sys.executable, "-c", code, "explain", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"},
        )

    return explain


def test_each_kind_of_origin_is_shown(explain, tmp_path):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "generation_config.json").write_text('{"top_k": 20}')
    text = "model:\n  name: scripted\n  path: ./weights\n  options:\n    beams: 2\n"
    (tmp_path / "a.yaml").write_text(text)
    done = explain("a.yaml", "--set", "engine.max_rows=4", "--json")
    assert done.returncode == 0, done.stderr
    told = {row["path"]: row for row in json.loads(done.stdout)["values"]}
    shown = {
        path: (told[path]["value"], told[path]["origin"]["kind"], told[path]["origin"]["detail"])
        for path in told
    }
    assert shown["device"] == ("auto", "default", "")
    assert shown["model.options.beams"] == (2, "file", "a.yaml:5")
    assert shown["engine.max_rows"] == (4, "set", "--set engine.max_rows")
    assert shown["model.options.style"] == ("plain", "plugin", "mstar-scripted")
    assert shown["engine.capture.rows"] == ([1, 2, 4], "derived", "from engine.max_rows")
    assert shown["generation.top_k"] == (20, "file", "generation_config.json")


def test_a_table_is_printed_for_a_name_that_a_plugin_ships(explain):
    done = explain("shipped")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["KEY", "VALUE", "ORIGIN"]
    assert ["model.name", "scripted", "file:", "shipped.yaml:1"] in lines


@pytest.mark.parametrize(
    ("text", "sets", "code", "said"),
    [
        ("model: {name: scripted, options: {beam: 2}}", (), 1, "a.yaml:1 model.options.beam"),
        ("model: {name: scripted}", ("model.options.beams=9",), 1, "--set model.options.beams"),
        ("model: {name: script}", (), 1, "scripted"),
        ("model: {name: scripted}\nplugins: {disable: [scripted]}", (), 1, "disabled"),
        ("model: {name: scripted}\nengine: {max_rowz: 1}", (), 1, "a.yaml:2 engine.max_rowz"),
        ("model: {name: scripted}", ("engine.max_rows",), 2, "--set"),
    ],
)
def test_what_is_wrong_is_told_on_stderr_with_its_exit_code(
    explain, tmp_path, text, sets, code, said
):
    (tmp_path / "a.yaml").write_text(text)
    done = explain("a.yaml", *(word for each in sets for word in ("--set", each)))
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("answer", ["7", "int"])
def test_options_that_are_no_class_of_attrs_are_told_as_the_plugin_s_fault(
    explain, tmp_path, answer
):
    plugin = tmp_path / "site" / "mstar_scripted" / "plugin.py"
    plugin.write_text(PLUGIN.replace("return Options", f"return {answer}"))
    done = explain("shipped")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: scripted: config_schema\n")
    assert "want  an attrs class" in done.stderr
