"""A checkpoint by folder or hub id: a folder is used as it is, an id from the cache first.

``package:NAME/FOLDER`` is a folder that an installed package holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from mstar_core.errors import CheckpointError, Words
from mstar_core.model.checkpoint import open_checkpoint

CONFIG = "config.json"
PACKAGE = "package:"
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
UNWANTED = ("*.fp32*",)
"""A second copy in another dtype."""
UNWANTED_INSIDE = "*/*.safetensors"
"""Weights of other formats, in folders of their own."""
WANT = "a checkpoint folder, or a hub id such as org/name"


def resolve_checkpoint(
    path_or_id: str,
    revision: str | None = None,
    *,
    offline: bool = False,
    progress: Callable[[str], None] | None = None,
    cache: Path | None = None,
    inner: tuple[str, ...] = (),
) -> Path:
    """The folder of a checkpoint; downloads it only if it is neither a folder nor in the cache.

    ``progress`` is told, in a sentence, before a download begins; the hub client's own bar runs on
    stderr. ``cache`` is the hub's cache folder where it is not the usual one; ``inner`` are folders
    of the checkpoint that hold weights too. Raises CheckpointError saying what was looked for and
    where.
    """
    if path_or_id.startswith(PACKAGE):
        return _with_config(_in_package(path_or_id))
    folder = _folder(path_or_id)
    if folder is not None:
        return folder
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", path_or_id):
        raise CheckpointError(
            where=path_or_id,
            got=Words("no such folder, and not the form of a hub id"),
            want=WANT,
            fix="check the spelling; a path that is not absolute starts at the current folder",
        )
    cached, why = _from_cache(path_or_id, revision, cache, inner)
    if cached is not None:
        return cached
    if offline:
        raise CheckpointError(
            where=path_or_id,
            got=Words(f"not a folder, and {why}; --offline was given"),
            want=WANT,
            fix="run once without --offline, or name a folder",
        )
    if progress is not None:
        progress(f"{path_or_id} is not a folder, and {why}: downloading it from the hub")
    ignored = [*UNWANTED, *(() if inner else (UNWANTED_INSIDE,))]
    return _downloaded(path_or_id, revision, cache, why, ignored)


def _folder(written: str) -> Path | None:
    """The folder of that path; None where nothing is there."""
    path = Path(written).expanduser()
    try:
        if path.is_dir():
            return _with_config(path)
        there = path.exists()
    except OSError as error:
        got, fix = Words(error.strerror or str(error)), "check the path and its permissions"
        raise CheckpointError(where=written, got=got, want=WANT, fix=fix) from error
    if there:
        got, fix = Words("a file"), "name the folder it is in"
        raise CheckpointError(where=written, got=got, want=WANT, fix=fix)
    return None


def _in_package(written: str) -> Path:
    """The folder of ``package:NAME/FOLDER``; the package is found without importing it."""
    name, _, inner = written.removeprefix(PACKAGE).partition("/")
    spec = find_spec(name) if name.isidentifier() else None
    for root in (spec.submodule_search_locations or []) if spec else []:
        if (Path(root) / inner).is_dir():
            return Path(root) / inner
    raise CheckpointError(
        where=written,
        got=Words("no such package" if spec is None else f"no folder {inner!r} in {name}"),
        want="package:NAME/FOLDER, a folder inside an installed package",
        fix="install the package, or correct the folder's name",
    )


def _with_config(folder: Path) -> Path:
    if (folder / CONFIG).is_file():
        return folder
    names = sorted(entry.name for entry in folder.iterdir())
    held = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    raise CheckpointError(
        where=str(folder),
        got=Words(
            f"a folder without {CONFIG}" + (f"; it has {held}" if names else "; it is empty")
        ),
        want=f"a checkpoint folder: {CONFIG}, safetensors files and the tokenizer's files",
        fix="name the folder that holds the checkpoint's files",
    )


def _from_cache(
    name: str, revision: str | None, cache: Path | None, inner: tuple[str, ...]
) -> tuple[Path | None, str]:
    """The complete snapshot in the cache, or None and why there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(name, revision=revision, cache_dir=cache, local_files_only=True)
        )
    except (LocalEntryNotFoundError, HFValidationError):
        at = f" at revision {revision}" if revision else ""
        return None, f"not found in the hub cache{at}"
    try:
        open_checkpoint(_with_config(folder), inner)
    except CheckpointError as error:
        return None, f"incomplete in the hub cache ({error.got})"
    return folder, ""


def _downloaded(
    name: str, revision: str | None, cache: Path | None, why: str, ignored: list[str]
) -> Path:
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            name,
            revision=revision,
            cache_dir=cache,
            allow_patterns=list(WANTED),
            ignore_patterns=ignored,
        )
    except Exception as error:  # whatever the client raises, the reader needs the id and a remedy
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            where=name,
            got=Words(f"not a folder, {why}, and the hub answered: {reason}"),
            want=WANT,
            fix="check id, revision, access and network; or name a folder",
        ) from error
    return _with_config(Path(folder))
