"""Any text is a configuration, or is refused with the four facts; nothing else is ever raised."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mstar_core.config import Config, ConfigErrors, resolve
from mstar_core.config.located import Located
from mstar_core.config.read import read_yaml
from mstar_core.errors import ConfigError

FRAGMENTS = [
    *("model", "name", "engine", "limits", "server", "nodes", "max_rows", "options", "echo"),
    *(":", ": ", "- ", "\n", "\n  ", "\t", "{", "}", "[", "]", ",", "|", ">", "&a", "*a", "<<"),
    *("!!python/object/apply:os.system", "---", "%YAML", "#", "'", '"', "\\", "\0", "\x85", "é"),
    *("1", "-1", "1e999", ".nan", "~", "true", "off", "64MiB", "9" * 40),
]
YAML = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(FRAGMENTS)).map("".join))
SECTIONS = ["model", "engine", "limits", "server", "nodes", "debug", "plugins"]
KEYS = ["name", "path", "options", "max_rows", "max_open", "port", "api_key_file", "capture", "x"]
NUMBERS = st.one_of(st.integers(-3, 99), st.integers(), st.floats(), st.booleans())
PLAIN = st.one_of(st.none(), NUMBERS, st.text(max_size=8), st.sampled_from(["echo", "64MiB"]))
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)
ANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def told(call):
    """What ``call`` gives; or the facts of its refusal, checked."""
    try:
        return call()
    except ConfigError as error:
        for one in error.errors if isinstance(error, ConfigErrors) else (error,):
            assert all(one.facts().values()), one
        return None


@ANY
@given(YAML)
def test_any_text_is_yaml_with_places_or_a_refusal(text):
    got = told(lambda: read_yaml(text, "a.yaml"))
    assert got is None or isinstance(got, Located)


@ANY
@given(st.dictionaries(st.sampled_from(SECTIONS), VALUES))
def test_any_values_are_a_configuration_or_a_refusal(tmp_path, values):
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps({"model": {"name": "echo"}, **values}), encoding="utf-8")
    got = told(lambda: resolve(path).config)
    assert got is None or isinstance(got, Config)


@ANY
@given(st.text(max_size=40))
def test_any_set_is_taken_or_refused(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text("model: {name: echo}\n", encoding="utf-8")
    got = told(lambda: resolve(path, [f"engine.max_rows={text}"]).config)
    assert got is None or isinstance(got, Config)


@pytest.mark.parametrize(
    ("text", "value"),
    [("!!python/object/apply:os.system [id]", ["id"]), ("a: !!python/name:os.x", None)],
)
def test_a_tag_of_yaml_makes_no_object(text, value):
    got = told(lambda: read_yaml(text, "a.yaml"))
    assert (got and got.plain()) == value
