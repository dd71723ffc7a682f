"""The documents say what is there: names, links, commands, generated pages, every id."""

import ast
import re
import shlex

import pytest

from mstar_core.cli.parser import Parser, verbs
from mstar_core.plugins.reference import hooks_reference

LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
TOUR_ROW = re.compile(r"^\| \d+ \| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)
CHECK_ID = re.compile(r"\bS(\d)\.(\d+)(?:[-\u2013]S?(?:\d\.)?(\d+))?")
"""``S0.12``, or a range: ``S0.12-S0.15``."""
NUM_CASES = 124


def pages(root):
    """Every page of the repository's documents."""
    return [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("plugins/*/*.md")]


def names_in(path):
    """Functions, classes and ``Class.method`` of a module."""
    found = set()
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, functions | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{i.name}" for i in node.body if isinstance(i, functions)}
    return found


def test_the_page_of_hooks_is_what_the_specs_say(root):
    assert (root / "docs/hooks.md").read_text(encoding="utf-8") == hooks_reference()


def test_every_name_in_the_tour_exists(root):
    rows = TOUR_ROW.findall((root / "docs/tour.md").read_text(encoding="utf-8"))
    assert len(rows) > 40
    missing = []
    for file, cell in rows:
        known = names_in(root / file)
        missing += [f"{file}: {name}" for name in CODE.findall(cell) if name not in known]
    assert missing == []


def test_every_file_that_a_page_names_exists(root):
    missing = []
    for page in pages(root):
        if page.name.startswith("writing-a-"):
            continue  # names files of the reader's own package
        for name in CODE.findall(page.read_text(encoding="utf-8")):
            if re.fullmatch(r"(mstar_core|plugins|tests|docs|configs|tools)/[\w./-]+", name):
                there = (root / name).exists() or (page.parent / name).exists()
                missing += [] if there else [f"{page.name}: {name}"]
    assert missing == []


def test_every_relative_link_leads_somewhere(root):
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages(root)
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_first_screen_has_the_two_commands(root):
    first = "\n".join((root / "README.md").read_text(encoding="utf-8").splitlines()[:24])
    for command in ("make demo", "make test", "pip install"):
        assert command in first


def flags_of(verb):
    """Every flag of a verb."""
    import argparse
    from importlib import import_module

    parser = Parser(prog="docs")
    subparsers = parser.add_subparsers(dest="verb")
    import_module(f"mstar_core.cli.{verb.replace('-', '_')}").add_parser(subparsers)
    assert isinstance(subparsers, argparse._SubParsersAction)
    return set(subparsers.choices[verb].flags())


def test_every_command_on_a_page_has_a_verb_and_flags_that_exist(root):
    wrong, seen = [], 0
    for page in pages(root):
        for block in CONSOLE.findall(page.read_text(encoding="utf-8")):
            for line in block.splitlines():
                if not line.startswith("$ mstar-core "):
                    continue
                seen += 1
                verb, *words = shlex.split(line)[2:]
                known = flags_of(verb) if verb in verbs() else set()
                given = {word.partition("=")[0] for word in words if word.startswith("--")}
                if not known or given - known:
                    wrong.append(f"{page.name}: {line}")
    assert seen > 8
    assert wrong == []


def test_the_page_of_cases_answers_each_id_once(root):
    rows = re.findall(r"^\| ([A-Z]+-\d\d) \|", (root / "docs/cases.md").read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows)) == NUM_CASES


def test_every_test_that_a_page_names_exists(root):
    sources = [*root.glob("tests/**/*.py"), *root.glob("plugins/*/tests/*.py")]
    sources += root.glob("mstar_core/testing/**/*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    text += "\n".join(
        p.read_text(encoding="utf-8") for p in root.glob("mstar_core/testing/**/*.py")
    )
    pages = [(root / f"docs/{name}.md").read_text("utf-8") for name in ("cases", "checklist")]
    named = [name for name in CODE.findall("\n".join(pages)) if name.startswith("test_")]
    assert len(named) > 100
    assert [name for name in named if f"def {name}(" not in text] == []


@pytest.mark.shared
def test_the_page_of_cases_has_exactly_the_ids_there_are(root):
    source = root.parent / "shared" / "cases.md"
    if not source.is_file():
        pytest.skip("the shared folder with cases.md is not beside this checkout")
    wanted = set(re.findall(r"^### ([A-Z]+-\d\d) ", source.read_text(), re.MULTILINE))
    page = (root / "docs/cases.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| ([A-Z]+-\d\d) \|", page, re.MULTILINE)) == wanted


def items(text):
    """Checklist numbers that a text names, ranges spelt out."""
    found = set()
    for part, first, last in CHECK_ID.findall(text):
        found |= {(int(part), n) for n in range(int(first), int(last or first) + 1)}
    return found


@pytest.mark.shared
def test_the_checklist_answers_every_item(root):
    source = root.parent / "shared" / "checklist.md"
    if not source.is_file():
        pytest.skip("the shared folder with checklist.md is not beside this checkout")
    wanted = set()
    for bold in re.findall(r"^\* \*\*(S[^*]+)\*\*", source.read_text(), re.MULTILINE):
        wanted |= items(bold)
    for also in re.findall(r"\*\*(S3\.[^*]+)\*\*", source.read_text()):
        wanted |= items(also)
    rows = (root / "docs/checklist.md").read_text(encoding="utf-8").splitlines()
    answered = set()
    for row in rows:
        if row.startswith("| S"):
            answered |= items(row.split("|")[1])
    assert wanted - answered == set()
