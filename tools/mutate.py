"""Undo one part of a mechanism at a time, and see the named test fail.

    python tools/mutate.py                     every mutation of tools/mutations.toml
    python tools/mutate.py NAME…               those whose name contains one of these words
    python tools/mutate.py --table FILE.toml   another table

A mutation replaces one text of one file by another, in a copy of the repository, and runs one test
there. It is *killed* where the test fails, or hangs, and *survived* where it passes; *stale* where
the text is not in the file exactly once. All named tests are first run unchanged: they must pass.
The exit code is 1 unless every mutation was killed, and 2 where none is called so. The working tree
is only read.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

LONGEST_S = 600.0
"""A test that takes longer hangs."""
REPOSITORY = Path(__file__).resolve().parent.parent
COPIED = ("mstar_core", "tests", "plugins", "tools", "pyproject.toml", "README.md")


@frozen(kw_only=True)
class Mutation:
    """One part undone."""

    name: str
    file: str
    old: str
    new: str
    test: str
    """A pytest node id, or the beginning of a parametrised one."""


def read_table(file: Path) -> list[Mutation]:
    """The mutations of a table, in order."""
    rows = tomllib.loads(file.read_text())["mutation"]
    return [Mutation(**row) for row in rows]


def copy_repository(folder: Path) -> None:
    """What the tests need, without caches."""
    ignore = shutil.ignore_patterns("__pycache__", ".*_cache", ".venv")
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copy(source, folder / name)


def passes(folder: Path, tests: Sequence[str]) -> bool:
    """Whether these tests pass in the copy; what they print is kept to itself."""
    paths = [str(folder), *map(str, folder.glob("plugins/*"))]
    code = (
        f"import sys; sys.path[:0] = {paths!r}; import pytest; "
        f"sys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', *{list(tests)!r}]))"
    )
    command = [sys.executable, "-B", "-c", code]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {' '.join(tests)}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def try_mutation(folder: Path, mutation: Mutation) -> str:
    """``killed``, ``survived`` or ``stale``; the copy is as it was."""
    file = folder / mutation.file
    sound = file.read_text()
    if sound.count(mutation.old) != 1:
        return "stale"
    file.write_text(sound.replace(mutation.old, mutation.new))
    try:
        return "survived" if passes(folder, [mutation.test]) else "killed"
    finally:
        file.write_text(sound)


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutations that are asked for."""
    parser = argparse.ArgumentParser(prog="python tools/mutate.py")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--table", type=Path, default=REPOSITORY / "tools" / "mutations.toml")
    asked = parser.parse_args(arguments)
    table = [
        m
        for m in read_table(asked.table)
        if not asked.words or any(word in m.name for word in asked.words)
    ]
    if not table:
        say(f"no mutation of {asked.table.name} is called {' or '.join(asked.words)}")
        return 2
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        copy_repository(folder)
        if not passes(folder, sorted({m.test for m in table})):
            say("a named test fails without any mutation")
            return 1
        for mutation in table:
            begin = time.perf_counter()
            outcome = try_mutation(folder, mutation)
            counts[outcome] = counts.get(outcome, 0) + 1
            test = mutation.test.rpartition("::")[2]
            say(f"{outcome:9}{mutation.name:55}{time.perf_counter() - begin:5.1f} s  {test}")
    say(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return 0 if set(counts) == {"killed"} else 1


if __name__ == "__main__":
    sys.exit(main())
