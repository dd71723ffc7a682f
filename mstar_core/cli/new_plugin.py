"""``mstar-core new-plugin NAME``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import mstar_core
from mstar_core.errors import UsageError, Words
from mstar_core.names import normalise
from mstar_core.plugins.builtin import CORE_OFFERS, OPERATIONS
from mstar_core.plugins.compatible import API
from mstar_core.plugins.discover import discover

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
CORE = "0.1,<0.2"
"""The cores that what is written here fits."""
SHARED = {"pyproject.toml": "pyproject", "README.md": "readme", "$package/__init__.py": "init"}
FILES: Mapping[str, Mapping[str, str]] = {
    "model": {
        **SHARED,
        "$package/plugin.py": "model_plugin",
        "$package/mstar_plugin.toml": "model_manifest",
        "$package/model.py": "model",
        "$package/front.py": "model_front",
        "$package/tiny/config.json": "model_sizes",
        "$package/configs/${name}_tiny.yaml": "model_config",
        "tests/test_$name.py": "model_tests",
    },
    "backend": {
        **SHARED,
        "$package/plugin.py": "backend_plugin",
        "$package/mstar_plugin.toml": "backend_manifest",
        "$package/backend.py": "backend",
        "tests/test_$name.py": "backend_tests",
    },
}
"""Kind → file that is written → its text in the folder ``skeleton``."""


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("new-plugin", help="a working skeleton")
    parser.add_argument("name", metavar="NAME", help="what the plugin is called, like `tiny`")
    parser.add_argument("--kind", choices=sorted(FILES), default="model", help="default model")
    parser.add_argument(
        "--operation",
        choices=sorted(OPERATIONS),
        default="sampling",
        help="what a backend implements; default sampling",
    )
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where it is written; default mstar-NAME"
    )


def run(args: argparse.Namespace) -> int:
    """Write a plugin that installs, passes its own tests and is yours to change.

    A model plugin answers text with random weights; a backend plugin computes its operation as the
    core does. Its tests are the contracts of the kit. Nothing is downloaded or installed.

    Example:  mstar-core new-plugin tiny && pip install --no-deps -e mstar-tiny && pytest mstar-tiny
    """
    words = words_of(args.name, args.kind, args.operation)
    _check_free(words, args.kind)
    folder = args.folder or Path(words["dist"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            where="mstar-core new-plugin --folder",
            got=Words(f"{folder}, which is not empty"),
            want="a folder that is empty or not there yet",
            fix="choose another folder, or remove this one",
        )
    written = {folder / name: text for name, text in texts(args.kind, words).items()}
    try:
        for file, text in written.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            where="mstar-core new-plugin --folder",
            got=Words(error),
            want="a folder that can be made and written to",
            fix="choose another folder",
        ) from error
    print("\n".join(map(str, written)))
    return 0


def _check_free(words: Mapping[str, str], kind: str) -> None:
    """Raises UsageError for a name that the core or an installed plugin has already."""
    offer = {
        "model": f"model {words['name']}",
        "backend": f"backend {words['operation']}.{words['name']}",
    }[kind]
    taken = [
        record.release
        for record in discover()
        if normalise(words["dist"]) == normalise(record.distribution)
        or normalise(words["name"]) == normalise(record.name)
        or offer in record.offers.names()
    ]
    if words["package"] == mstar_core.__name__ or offer in CORE_OFFERS:
        taken = [f"mstar-core {mstar_core.__version__}"]
    if taken:
        raise UsageError(
            where="mstar-core new-plugin NAME",
            got=Words(f"{words['name']}, which {taken[0]} has"),
            want="a name that nothing installed has",
            fix="choose another name",
        )


def words_of(name: str, kind: str, operation: str) -> dict[str, str]:
    """What the skeleton's placeholders stand for. Raises UsageError for a name that is none."""
    if not NAME.fullmatch(name):
        raise UsageError(
            where="mstar-core new-plugin NAME",
            got=name,
            want="small letters, digits and single underscores, a letter first",
            fix="write a name like tiny or my_model",
        )
    titles = {"model": f"The model {name}", "backend": f"The operation {operation}, by {name}"}
    nexts = {
        "model": f"Next: the real model in `mstar_{name}/model.py`, its tokenizer in `front.py`.",
        "backend": f"Next: a kernel in `mstar_{name}/backend.py`, and what it refuses.",
    }
    return {
        "name": name,
        "package": f"mstar_{name}",
        "dist": f"mstar-{name.replace('_', '-')}",
        "title": titles[kind],
        "next": nexts[kind],
        "Class": _camel(name),
        "operation": operation,
        "Contract": f"{_camel(operation)}Contract",
        "core": CORE,
        "api": str(API),
    }


def texts(kind: str, words: Mapping[str, str]) -> dict[str, str]:
    """File → text of a skeleton."""
    skeleton = files("mstar_core.cli") / "skeleton"
    return {
        Template(file).substitute(words): Template(
            (skeleton / f"{text}.txt").read_text(encoding="utf-8")
        ).substitute(words)
        for file, text in FILES[kind].items()
    }


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
