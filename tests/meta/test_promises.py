"""The page of promises: each row names tests that exist, and a figure that is there or a reason."""

import re

import pytest

TEST = re.compile(r"`((?:tests|plugins)/[\w./-]+\.py)::(test_\w+)`")
FIGURE = re.compile(r"\]\(measurements\.md#([\w-]+)\)")
REASONS = ("no figure: ", "not here, because ")


@pytest.fixture(scope="module")
def rows(root):
    """The cells of each row."""
    lines = (root / "docs/promises.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[-1].strip() != "figure"]


def slug(heading):
    """What links call a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_each_row_names_tests_that_exist(root, rows):
    assert len(rows) > 40
    missing = []
    for promise, tests, _ in rows:
        named = TEST.findall(tests)
        assert named or tests.startswith("no test, "), promise
        assert len(named) == tests.count("::"), promise
        for path, name in named:
            file = root / path
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            if f"def {name}(" not in text:
                missing.append(f"{path}::{name}")
    assert missing == []


def test_each_row_has_a_figure_or_a_reason(root, rows):
    page = (root / "docs/measurements.md").read_text(encoding="utf-8")
    there = {slug(heading) for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    for promise, _, figure in rows:
        asked = FIGURE.findall(figure)
        assert asked or figure.startswith(REASONS), promise
        assert set(asked) <= there, promise


def test_each_family_of_attacks_has_a_row(root, rows):
    named = {path for _, tests, _ in rows for path, _ in TEST.findall(tests)}
    families = {p.relative_to(root).as_posix() for p in root.glob("tests/advisories/test_*.py")}
    assert families <= named
