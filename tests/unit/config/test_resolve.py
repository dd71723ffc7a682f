"""A file and --set values to one checked configuration."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs
import pytest
from attrs import field, frozen

from mstar_core.config import ConfigErrors, Located, about, describe, resolve, structure, whole
from mstar_core.errors import ConfigError, UsageError

MODEL = "model: {name: tiny}\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="a.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture
def errors_of(write):
    """Every error of a file's text, as (where, got, want, fix) facts."""

    def errors_of(text, *sets):
        with pytest.raises(ConfigError) as caught:
            resolve(write(text), sets)
        error = caught.value
        return [e.facts() for e in (error.errors if isinstance(error, ConfigErrors) else [error])]

    return errors_of


def test_a_minimal_file_gives_every_default(write):
    config = resolve(write(MODEL)).config
    assert (config.model.name, config.device, config.engine.max_rows) == ("tiny", "auto", 32)
    assert (config.engine.in_flight, config.engine.step_timeout_s) == (1, 60.0)
    assert config.engine.capture_rows == (1, 2, 4, 8, 16, 32)
    assert config.limits.max_new_tokens is None


def test_the_configuration_cannot_be_changed(write):
    config = resolve(write(MODEL)).config
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.engine.max_rows = 3


def test_an_unknown_key_names_file_line_path_and_the_nearest_key(errors_of):
    """PL-07: an unknown key."""
    (error,) = errors_of(MODEL + "engine:\n  max_rowz: 4\n")
    assert error["where"] == "a.yaml:3 engine.max_rowz"
    assert error["fix"] == "write 'max_rows'" or error["fix"] == "write max_rows"


def test_a_hyphen_is_told_to_be_an_underscore(errors_of):
    """PL-07: `max-num-seqs` spelling."""
    (error,) = errors_of(MODEL + "engine: {token-budget: 4}\n")
    assert error["fix"] == "write token_budget"


def test_a_key_at_the_wrong_level_says_who_owns_it(errors_of):
    """PL-08: right key, wrong section."""
    (error,) = errors_of(MODEL + "limits: {max_rows: 4}\nplugins: {}\n")
    assert error["fix"] == "move it: max_rows belongs to engine"
    (error,) = errors_of(MODEL + "max-rows: 4\n")
    assert error["fix"] == "move it: max_rows belongs to engine"


def test_a_key_that_moved_says_where_it_went(errors_of):
    """PL-07: a section this configuration does not have."""
    (error,) = errors_of(MODEL + "scheduler: {max_num_seq: 8}\n")
    assert error["where"] == "a.yaml:2 scheduler"
    assert error["fix"] == "scheduler is now engine; write it there"


def test_a_key_like_no_other_is_to_be_removed(errors_of):
    (error,) = errors_of(MODEL + "learning_rate: 1\n")
    assert error["fix"] == "remove it"


@pytest.mark.parametrize(
    ("key", "value", "want", "fix"),
    [
        ("engine.max_rows", '"8"', "a whole number", "write 8 without quotes"),
        ("engine.max_rows", "true", "a whole number", "write a plain number, such as 8"),
        ("engine.max_rows", "8.0", "a whole number", "write a plain number, such as 8"),
        ("engine.max_rows", "0", "a whole number from 1 to 4096 (rows)", "write for example 1"),
        ("engine.max_rows", "null", "a whole number", "write a plain number, such as 8"),
        ("engine.in_flight", "5", "a whole number from 0 to 4 (steps)", "write for example 1"),
        ("engine.step_timeout_s", ".nan", "a finite number", "write a plain number, such as 8"),
        ("engine.step_timeout_s", ".inf", "a finite number", "write a plain number, such as 8"),
        ("engine.step_timeout_s", "true", "a finite number", "write a plain number, such as 8"),
        ("engine.resident", "offf", "one of auto, off", "write off"),
        ("engine.resident", "true", "one of auto, off", None),
        ("engine.capture.require", "yes", "true or false", "write true or false"),
        ("engine.capture.require", "1", "true or false", "write true or false"),
        ("engine.capture.rows", "4", None, "write a list: [4]"),
        ("engine.capture.rows", "[1, 0]", "whole numbers of at least 1 (rows)", None),
        ("engine.capture.rows", "[64]", "row counts up to engine.max_rows, 32", None),
        ("engine.min_chunk", "1000", "at most engine.token_budget, 512 (tokens)", None),
        ("engine.kv_memory", "2 apples", None, None),
        ("engine.kv_memory", "-1", None, None),
        ("model.revision", "12", "text, or null", 'put it in quotes: "12"'),
        ("model.name", '""', "text that is not empty", None),
        ("limits.max_new_tokens", "0", None, None),
        ("engine", "fast", "a mapping of settings", None),
        ("nodes", "[]", "a mapping", None),
        ("model.options", "3", "a mapping of settings", None),
        ("nodes", "{text: {backend: {}}}", None, "write backends"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_place_and_remedy(write, key, value, want, fix):
    nested = value
    for name in reversed(key.split(".")):
        nested = f"{{{name}: {nested}}}"
    text = nested if key.startswith("model.name") else f"{nested[:-1]}, model: {{name: tiny}}}}"
    if key.startswith("model."):
        text = nested.replace("{model: {", "{model: {name: tiny, ") if "name" not in key else nested
    with pytest.raises(ConfigError) as caught:
        resolve(write(text))
    error = caught.value
    assert error.where.startswith(f"a.yaml:1 {key}")
    assert want is None or error.want == want
    assert fix is None or error.fix == fix


def test_everything_wrong_is_told_at_once(errors_of):
    errors = errors_of(
        "model: {path: 3}\nengine:\n  max_rows: x\n  in_flight: 9\n  oops: 1\n", "debug.row=true"
    )
    assert [e["where"] for e in errors] == [
        "a.yaml:1 model.name",
        "a.yaml:1 model.path",
        "a.yaml:5 engine.oops",
        "a.yaml:3 engine.max_rows",
        "a.yaml:4 engine.in_flight",
        "--set debug.row",
    ]


def test_a_missing_section_is_named(errors_of):
    (error,) = errors_of("device: cpu\n")
    assert (error["where"], error["got"]) == ("a.yaml:1 model.name", "nothing")


@pytest.mark.parametrize("text", ["", "\n# only a comment\n", "- 1\n", "word\n"])
def test_a_file_without_sections_is_refused(errors_of, text):
    """PL-07: empty file."""
    (error,) = errors_of(text)
    assert error["where"] == "a.yaml"
    assert "model: {name: NAME}" in error["fix"]


def test_an_empty_section_is_all_defaults(write):
    assert resolve(write(MODEL + "engine:\nnodes:\n")).config.engine.max_rows == 32


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("2GiB", 2 << 30), ("1.5 GiB", 3 << 29), ("2GB", 2 * 10**9), ("512mib", 512 << 20), ("7", 7)],
)
def test_bytes_may_be_written_with_a_unit(write, text, num_bytes):
    assert resolve(write(MODEL), [f"engine.kv_memory={text}"]).config.engine.kv_memory == num_bytes


def test_words_like_off_need_no_quotes(write):
    engine = resolve(write(MODEL + "engine: {graphs: off, resident: off}\n")).config.engine
    assert (engine.graphs, engine.resident) == ("off", "off")


def test_a_set_value_is_typed_by_the_schema(write):
    sets = [
        "model.revision=12",
        "engine.capture.rows=[1, 4]",
        "engine.graphs=off",
        "model.path=null",
    ]
    config = resolve(write(MODEL), sets).config
    assert (config.model.revision, config.model.path) == ("12", None)
    assert (config.engine.capture.rows, config.engine.graphs) == ((1, 4), "off")


def test_a_later_set_wins_and_a_set_makes_the_sections_it_names(write):
    sets = ["nodes.text.backends.linear=slow", "nodes.text.backends.linear=fast"]
    assert resolve(write(MODEL), sets).config.nodes["text"].backends == {"linear": "fast"}


def test_a_set_of_an_unknown_key_gives_the_nearest(errors_of):
    (error,) = errors_of(MODEL, "engine.max_row=3")
    assert (error["where"], error["fix"]) == ("--set engine.max_row", "write max_rows")


@pytest.mark.parametrize("text", ["engine.max_rows", "=3", "engine..x=3", ".a=1", ""])
def test_a_set_without_key_or_value_is_a_usage_error(write, text):
    with pytest.raises(UsageError):
        resolve(write(MODEL), [text])


def test_a_set_of_broken_yaml_names_the_set(write):
    with pytest.raises(ConfigError) as caught:
        resolve(write(MODEL), ["engine.capture.rows=[1,"])
    assert "--set engine.capture.rows" in caught.value.where


def test_every_value_knows_where_it_came_from(write):
    resolved = resolve(write(MODEL + "engine:\n  max_rows: 6\n"), ["device=cpu"])
    resolved.derive("engine.kv_memory", 1 << 20, "a quarter of free memory")
    origin = {row.path: (row.value, str(row.origin)) for row in describe(resolved)}
    assert origin["engine.max_rows"] == (6, "file: a.yaml:3")
    assert origin["device"] == ("cpu", "set: --set device")
    assert origin["debug.conservation"] == (False, "default")
    assert origin["engine.kv_memory"] == (1 << 20, "derived: a quarter of free memory")
    assert origin["engine.capture.rows"] == ([1, 2, 4, 6], "derived: from engine.max_rows")


# --- finding the file


def test_a_bare_name_is_looked_up_in_the_installed_plugins(write):
    file = write(MODEL, "tiny.yaml")
    resolved = resolve("tiny", shipped=lambda: [file])
    assert resolved.file == file


def test_a_name_that_nobody_ships_or_two_ship_is_an_error(write):
    one, two = write(MODEL, "x.yaml"), Path("elsewhere/x.yaml")
    with pytest.raises(ConfigError, match="no such file"):
        resolve("tiny")
    with pytest.raises(ConfigError, match="2 configs of that name") as caught:
        resolve("x", shipped=lambda: [one, two])
    assert str(two) in str(caught.value)


@pytest.mark.parametrize("typed", ["tin", "tinny.yaml", "tiny.yml"])
def test_a_misspelt_name_is_answered_with_the_nearest_that_a_plugin_ships(typed):
    shipped = [Path("/p/tiny.yaml"), Path("/p/whale.yaml")]
    with pytest.raises(ConfigError) as caught:
        resolve(typed, shipped=lambda: shipped)
    assert caught.value.fix == "write tiny.yaml"


def test_a_path_that_exists_is_never_looked_up(write):
    file = write(MODEL)
    assert resolve(str(file), shipped=lambda: [Path("/nowhere.yaml")]).file == file


def test_a_folder_and_a_binary_file_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="a folder"):
        resolve(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"b\.yaml"):
        resolve(tmp_path / "b.yaml")


def test_a_checkpoint_path_with_a_leading_dot_starts_at_the_file_that_has_it(write, tmp_path):
    file = write("model: {name: tiny, path: ./weights}\n")
    assert resolve(file).checkpoint == str((tmp_path / "weights").resolve())
    assert resolve(file, ["model.path=./here"]).checkpoint == "./here"
    assert resolve(file, ["model.path=org/name"]).checkpoint == "org/name"


# --- classes that plugins declare


@frozen(kw_only=True)
class Inner:
    page: int = field(default=16, validator=whole(1))


@frozen(kw_only=True)
class Options:
    thinking: bool = False
    style: Literal["long", "short"] = "long"
    scale: float = 1.0
    inner: Inner = field(factory=Inner, metadata=about("more"))
    words: Mapping[str, int] = field(factory=dict)
    ratio: float | str = field(default=1.0, validator=attrs.validators.in_([1.0, 0.5, "auto"]))


@frozen(kw_only=True)
class Other:
    beam: int = 1


def options(write, text, *sets):
    resolved = resolve(write("model:\n  name: tiny\n  options:\n" + text), sets)
    neighbours = {"nodes.speech.resources.beam": Other}
    read = resolved.structure_options(Options, owner="mstar-tiny", neighbours=neighbours)
    return resolved, read


def test_options_stay_raw_until_their_owner_reads_them(write):
    resolved, read = options(write, "    thinking: true\n    inner: {page: 3}\n    words: {a: 2}\n")
    assert isinstance(resolved.config.model.options, Located)
    assert read == Options(thinking=True, inner=Inner(page=3), words={"a": 2})
    shown = {row.path: (row.value, str(row.origin)) for row in describe(resolved)}
    assert shown["model.options.thinking"] == (True, "file: a.yaml:4")
    assert shown["model.options.style"] == ("long", "plugin: mstar-tiny")
    assert shown["model.options.words.a"] == (2, "file: a.yaml:6")
    assert "model.options" not in shown


def test_wrong_options_name_their_line(write):
    with pytest.raises(ConfigErrors) as caught:
        options(write, "    thinkin: true\n    inner: {page: 0}\n    ratio: 3.0\n")
    wheres = [error.where for error in caught.value.errors]
    assert wheres == [
        "a.yaml:4 model.options.thinkin",
        "a.yaml:5 model.options.inner.page",
        "a.yaml:6 model.options.ratio",
    ]
    assert caught.value.errors[0].fix == "write thinking"


@pytest.mark.parametrize(
    ("line", "owner"),
    [("max_rows: 3", "engine"), ("beam: 2", "nodes.speech.resources.beam")],
)
def test_a_key_of_another_owner_under_options_names_the_owner(write, line, owner):
    """PL-08: a core key under plugin options, and a key of another plugin."""
    with pytest.raises(ConfigError) as caught:
        options(write, f"    {line}\n")
    assert caught.value.fix == f"move it: {line.split(':')[0]} belongs to {owner}"


def test_a_resource_reads_its_settings_by_node_and_key(write):
    text = MODEL + "nodes:\n  text:\n    resources:\n      kv: {page: 8}\n"
    resolved = resolve(write(text), ["nodes.text.resources.more.page=4"])
    read = [resolved.structure_resource("text", key, Inner, owner="core") for key in ("kv", "more")]
    assert read == [Inner(page=8), Inner(page=4)]
    assert resolved.structure_resource("audio", "kv", Inner, owner="core") == Inner(page=16)
    assert resolved.origin["nodes.audio.resources.kv.page"].kind == "plugin"
    assert resolved.origin["nodes.text.resources.kv.page"].detail == "a.yaml:5"


def test_a_class_can_be_read_from_any_located_mapping():
    assert structure(Inner, Located({"page": Located(5)})) == Inner(page=5)
    with pytest.raises(ConfigError, match=r"spot\.page"):
        structure(Inner, Located({"page": Located(True)}), "spot")


def test_a_field_type_that_cannot_be_read_is_a_bug_of_the_class(write):
    @frozen(kw_only=True)
    class Odd:
        value: object = 1

    with pytest.raises(TypeError, match="not a type that a configuration class can use"):
        structure(Odd, Located({"value": Located(5)}))


def test_validators_also_guard_a_configuration_built_in_python():
    from mstar_core.config import EngineConfig

    for wrong in (True, 8.0, "8", 0, None):
        with pytest.raises(ConfigError, match="max_rows"):
            EngineConfig(max_rows=wrong)
    for wrong in (float("nan"), float("inf"), 0, True):
        with pytest.raises(ConfigError, match="step_timeout_s"):
            EngineConfig(step_timeout_s=wrong)


def test_reading_a_configuration_imports_no_torch():
    code = "import sys, mstar_core.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_origin_is_written_as_browsers_send_it(write, errors_of):
    good = ("https://app.example", "http://localhost:3000", "http://[::1]:80", "*")
    for origin in good:
        sets = [f"server.cors_origins=['{origin}']"]
        assert resolve(write(MODEL), sets).config.server.cors_origins == (origin,)
    for origin in ("app.example", "https://app.example/", "https://App.example", "a://b@c", ""):
        (told,) = errors_of(MODEL, f"server.cors_origins=['{origin}']")
        assert "no slash at the end" in told["fix"]
