"""The table of mutations: what it would replace is there, and so are its tests and its page."""

import subprocess
import sys
import tomllib

import pytest


@pytest.fixture(scope="module")
def table(root):
    return tomllib.loads((root / "tools/mutations.toml").read_text("utf-8"))["mutation"]


def test_each_text_that_would_be_replaced_is_in_its_file_once(root, table):
    stale = [
        row["name"]
        for row in table
        if (root / row["file"]).read_text("utf-8").count(row["old"]) != 1
    ]
    assert stale == []


def test_each_test_that_should_fail_exists(root, table):
    kits = (root / "mstar_core/testing").rglob("*.py")
    kit = "".join(each.read_text("utf-8") for each in kits)
    for row in table:
        file, *_, name = row["test"].split("::")
        source = (root / file).read_text("utf-8")
        assert f"def {name}(" in source + kit, row["test"]


def test_each_mutation_has_a_name_of_its_own_and_a_row_on_the_page_of_testing(root, table):
    page = (root / "docs/testing.md").read_text("utf-8")
    names = [row["name"] for row in table]
    assert len(set(names)) == len(names)
    assert [
        row["name"] for row in table if f"| {row['name']} | `{row['test']}` |" not in page
    ] == []


def test_a_name_that_no_mutation_has_runs_nothing(root):
    """An empty list of tests would be all tests there are."""
    command = [sys.executable, str(root / "tools/mutate.py"), "nothing of this name"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == "no mutation of mutations.toml is called nothing of this name\n"
