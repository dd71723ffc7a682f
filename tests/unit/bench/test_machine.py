"""What a measurement says that it was taken on."""

import subprocess

import pytest

from mstar_core.bench.machine import commit_of, described


@pytest.fixture
def checkout(tmp_path):
    """``checkout(*words)``: git in a checkout of its own, which holds ``mine.py``."""

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        command = ["git", *who, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "mine.py").write_text("a = 1")
    git("add", "mine.py")
    git("commit", "-q", "-m", "first")
    return git


def test_a_commit_is_that_of_the_checkout_and_says_where_files_were_changed(checkout, tmp_path):
    head = checkout("rev-parse", "--short", "HEAD")
    assert commit_of(tmp_path / "mine.py") == head
    (tmp_path / "mine.py").write_text("a = 2")
    assert commit_of(tmp_path / "mine.py") == f"{head}-dirty"


def test_what_is_installed_inside_another_checkout_is_of_no_commit(checkout, tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "installed.py").touch()
    assert commit_of(tmp_path / "venv" / "installed.py") == "not a checkout"


def test_a_machine_without_git_is_described_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    told = described("mstar-core bench sched")
    assert (told["commit"], told["command"]) == ("not a checkout", "mstar-core bench sched")
