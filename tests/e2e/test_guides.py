"""The guides, followed to the letter: their files, built as wheels, installed, tested and used."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r"^`([\w./-]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTEST = (
    "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
)
GUIDES = {
    "writing-a-model.md": ("mstar-bytes", "mstar_bytes"),
    "writing-a-backend.md": ("mstar-addmm", "mstar_addmm"),
}


def write_files(page, folder, package):
    """Every file of a guide; its package's ``__init__.py`` is empty."""
    files = dict(FILE.findall((DOCS / page).read_text(encoding="utf-8")))
    for name, text in {f"{package}/__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return files


@pytest.fixture(scope="module")
def guides(wheels, build_wheel, install_wheels, tmp_path_factory):
    """The folders of both guides, and the place where their wheels lie beside the core's."""
    sources, built = tmp_path_factory.mktemp("guides"), tmp_path_factory.mktemp("guide-wheels")
    for page, (folder, package) in GUIDES.items():
        write_files(page, sources / folder, package)
        build_wheel(sources / folder, built)
    (core,) = wheels.glob("mstar_core-*.whl")
    (built / core.name).write_bytes(core.read_bytes())
    return sources, install_wheels(built, tmp_path_factory.mktemp("guide-site"))


def test_both_are_listed_and_ready(guides):
    _, site = guides
    rows = site.rows("--probe")
    assert (rows["bytes"]["state"], rows["addmm"]["state"]) == ("ready", "ready")
    assert rows["bytes"]["offers"]["models"] == ["bytes"]
    assert rows["addmm"]["offers"]["backends"] == ["linear.addmm"]


@pytest.mark.parametrize("folder", [folder for folder, _ in GUIDES.values()])
def test_its_suite_passes(guides, folder):
    sources, site = guides
    assert " passed" in site.python(PYTEST, str(sources / folder / "tests"))


def test_the_model_answers_a_request_with_the_backend_bound(guides):
    sources, site = guides
    code = (sources / "mstar-bytes" / "ask.py").read_text()
    assert site.python(code) == "length 8\n"
    assert "linear: addmm (auto)" in site.cli("check", "bytes.yaml")
    torch = site.cli("check", "bytes.yaml", "--set", "nodes.text.backends.linear=torch")
    assert "linear: torch (torch)" in torch


def test_a_backend_says_why_it_was_passed_over(guides):
    _, site = guides
    told = site.cli("check", "bytes.yaml", "--set", "model.dtype=bf16")
    assert (
        "linear: torch (auto); passed over: operation linear, backend addmm: torch.bfloat16" in told
    )


def test_the_files_of_a_guide_are_those_that_it_lists(tmp_path):
    for page, (folder, package) in GUIDES.items():
        tree = re.search(rf"```\n{folder}/\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[1]
        listed = {line.split()[0] for line in tree.splitlines()}
        assert listed <= {*write_files(page, tmp_path, package), f"{package}/__init__.py"}, page
