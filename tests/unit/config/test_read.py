"""YAML text to values with places."""

import pytest

from mstar_core.config.find import read_file
from mstar_core.config.findings import ConfigErrors
from mstar_core.config.read import read_yaml
from mstar_core.errors import ConfigError


def read(text):
    return read_yaml(text, "a.yaml")


def test_each_value_knows_the_line_of_its_key():
    root = read("engine:\n  max_rows:\n    4\n  capture: {rows: [1,\n   2]}\n")
    engine = root.value["engine"]
    assert engine.value["max_rows"].origin.detail == "a.yaml:2"
    assert engine.value["capture"].value["rows"].value[1].origin.detail == "a.yaml:5"
    assert root.plain() == {"engine": {"max_rows": 4, "capture": {"rows": [1, 2]}}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("012", 12),
        ("0x10", 16),
        ("1e-3", 1e-3),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-02", "2024-01-02"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9" * 5000, float("inf")),
    ],
)
def test_scalars_are_read_by_the_core_schema_of_yaml_1_2(text, value):
    got = read(f"a: {text}").plain()["a"]
    assert (got, type(got)) == (value, type(value))


def test_a_key_given_twice_names_both_lines_and_every_such_key_is_told():
    """PL-07: duplicate keys."""
    with pytest.raises(ConfigErrors) as caught:
        read("a: 1\nb: 1\na: 2\nd: {c: 1,\n c: 2}\nb: 2\n")
    texts = [str(error) for error in caught.value.errors]
    assert "a.yaml:3" in texts[0]
    assert "a.yaml:1 gives too" in texts[0]
    assert len(texts) == 3


def test_a_tab_as_indentation_is_named_with_its_line():
    """PL-07: tab indent."""
    with pytest.raises(ConfigError) as caught:
        read("engine:\n\tmax_rows: 4\n")
    assert caught.value.where.startswith("a.yaml:2")
    assert "tab" in caught.value.want
    assert caught.value.fix == "replace each tab with two spaces"


@pytest.mark.parametrize(
    "text",
    [
        "a: [1, 2",
        "a: b: c",
        "a: 1\n---\nb: 2\n",
        "a: !!python/name:os.system x",
        "? [1]\n: 2",
        "a: &x [*x]",
        "a: *nowhere",
        "a: \x00",
        "a: " + 5000 * "[",
        "a: " + 5000 * "[" + 5000 * "]",
        5000 * "- ",
    ],
)
def test_text_that_is_not_plain_yaml_is_an_error_that_names_the_file(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "a.yaml" in caught.value.where
    assert caught.value.fix


def test_an_alias_stands_for_the_value_it_names():
    assert read("a: &x {b: 1}\nc: *x\n").plain() == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_file_that_is_no_mapping_is_shown_by_its_beginning(tmp_path):
    (tmp_path / "a.yaml").write_text(1000 * "words ")
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / "a.yaml")
    got = str(caught.value).splitlines()[1]
    assert got.startswith("  got   'words words")
    assert got.endswith("… (6001 characters)")
    assert len(got) < 350
